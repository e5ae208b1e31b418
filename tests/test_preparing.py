"""What compiles grammars is made for a model that came later when nobody is there, and not while somebody is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from zerolayer.serve import preparing
from zerolayer.serve.preparing import Preparing

LOOKS = 20


class Grammars:
    prepared = False

    def prepare(self) -> None:
        self.prepared = True


class Steps:
    """Counts; each look may find more of them."""

    def __init__(self, each: int) -> None:
        self._steps, self._each, self.looks = 0, each, 0

    @property
    def steps(self) -> int:
        self.looks += 1
        self._steps += self._each
        return self._steps


def room(*, each: int = 0, taken: int = 0, bookings: tuple[object, ...] = ()) -> Any:
    calendar = SimpleNamespace(taken=taken, bookings=bookings)
    return SimpleNamespace(
        loaded=SimpleNamespace(grammars=Grammars()), steps=Steps(each), admission=SimpleNamespace(calendar=calendar)
    )


def looked(monkeypatch: pytest.MonkeyPatch, served: Any, until: Callable[[], bool], *, busy: bool = False) -> bool:
    """Whether it is made by the time that ``until`` holds."""
    monkeypatch.setattr(preparing, "_REST_S", 0.001)

    async def run() -> bool:
        with ThreadPoolExecutor(1) as aside:
            watch = Preparing(lambda: served, lambda: busy, aside)
            watch.begin()
            while not until():  # noqa: ASYNC110 - it is looked at, and tells nobody
                await asyncio.sleep(0.001)
            watch.stop()
            return served.loaded.grammars.prepared

    return asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize(
    ("served", "busy"),
    [(room(each=1), False), (room(taken=1), False), (room(bookings=("one",)), False), (room(), True)],
    ids=["steps run", "a slot is taken", "somebody is expected", "a reply is on its way"],
)
def test_nothing_is_made_while_somebody_would_wait(monkeypatch, served, busy) -> None:
    assert not looked(monkeypatch, served, lambda: served.steps.looks >= LOOKS, busy=busy)


def test_it_is_made_once_nobody_is_there(monkeypatch) -> None:
    served = room()
    assert looked(monkeypatch, served, lambda: served.loaded.grammars.prepared)


def test_what_is_there_already_is_not_looked_after(monkeypatch) -> None:
    served = room()
    served.loaded.grammars.prepare()
    assert looked(monkeypatch, served, lambda: True)
    assert served.steps.looks == 0
