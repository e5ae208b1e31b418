"""Inputs with their age: stamped where they are made, used while they are fresh, else waited for or replaced.

The decision is pure (``judge``); ``Input`` reads a source until it is made. The server judges the same stamps again
when the request arrives and when it starts, and refuses what has grown too old meanwhile (409 ``stale_input``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Literal, TypeVar

from zerolayer.client.errors import StaleInput
from zerolayer.client.service import Clocks

T = TypeVar("T")
_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Stamps:
    """When an input was made and when it reached this process, both Unix milliseconds, and how old it may be.

    Parts of a millisecond, as ``time.time() * 1000`` has them, are left out on the way.
    """

    event_time_ms: float
    ingest_time_ms: float | None = None
    max_age_ms: int | None = None

    def headers(self) -> dict[str, str]:
        """As the server reads them."""
        given = {
            "x-zl-event-time-ms": self.event_time_ms,
            "x-zl-ingest-time-ms": self.ingest_time_ms,
            "x-zl-max-age-ms": self.max_age_ms,
        }
        return {name: str(int(value)) for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Stamped(Generic[T]):
    """A value with its stamps. ``stale``: it is older than allowed, and the policy says to use it nonetheless."""

    value: T
    stamps: Stamps
    stale: bool = False


@dataclass(frozen=True)
class Policy(Generic[T]):
    """What to do with an input that is older than ``max_age_ms``.

    ``wait`` for a newer one, for at most ``wait_ms``, and then, or at once, do ``otherwise``: ``raise`` ``StaleInput``,
    take the ``fallback``, or ``use`` what there is and say so (``Stamped.stale``).
    """

    max_age_ms: int
    wait_ms: int = 0
    otherwise: Literal["raise", "fallback", "use"] = "raise"
    fallback: T | None = None
    look_ms: int = 20  # between two looks while waiting


class Verdict(Enum):
    """What ``judge`` says."""

    USE = "fresh enough"
    WAIT = "look again in a moment"
    OTHERWISE = "too old, and waited for long enough"


def judge(policy: Policy[T], age_ms: int, waited_ms: int) -> Verdict:
    """What to do with an input of that age after so long a wait. A negative age, a clock that is ahead, is no age."""
    if age_ms <= policy.max_age_ms:
        return Verdict.USE
    return Verdict.WAIT if waited_ms < policy.wait_ms else Verdict.OTHERWISE


@dataclass
class Input(Generic[T]):
    """A source of values: ``read`` gives the newest one and when it was made, in Unix milliseconds."""

    read: Callable[[], tuple[T, float]]
    policy: Policy[T]
    clocks: Clocks = field(default_factory=Clocks)
    waits: int = 0
    fallbacks: int = 0

    async def alatest(self) -> Stamped[T]:
        """The newest value, by the policy. Raises ``StaleInput``."""
        return await self._latest(self.clocks.sleep)

    def latest(self) -> Stamped[T]:
        """The same for code without an event loop."""

        async def sleep(seconds: float) -> None:
            time.sleep(seconds)  # noqa: ASYNC251 - there is no loop that this could hold up

        return _run(self._latest(sleep if self.clocks.sleep is asyncio.sleep else self.clocks.sleep))

    async def _latest(self, sleep: Callable[[float], Awaitable[object]]) -> Stamped[T]:
        policy, clocks = self.policy, self.clocks
        begun_ns = clocks.monotonic_ns()
        while True:
            value, made_ms = self.read()
            event_ms = int(made_ms)
            now_ms = clocks.wall_ns() // _NS_PER_MS
            age_ms = now_ms - event_ms
            waited_ms = (clocks.monotonic_ns() - begun_ns) // _NS_PER_MS
            verdict = judge(policy, age_ms, waited_ms)
            if verdict is Verdict.USE:
                return Stamped(value, Stamps(event_ms, now_ms, policy.max_age_ms))
            if verdict is Verdict.OTHERWISE:
                return self._otherwise(value, event_ms, now_ms)
            self.waits += 1
            await sleep(policy.look_ms / 1000)

    def _otherwise(self, value: T, event_ms: int, now_ms: int) -> Stamped[T]:
        policy = self.policy
        if policy.otherwise == "use":
            # Without a limit: the server would refuse what was just decided to be used.
            return Stamped(value, Stamps(event_ms, now_ms), stale=True)
        if policy.otherwise == "fallback" and policy.fallback is not None:
            self.fallbacks += 1
            return Stamped(policy.fallback, Stamps(now_ms, now_ms))
        raise StaleInput(
            f"The input is {now_ms - event_ms} ms old, and {policy.max_age_ms} ms are allowed. Read a newer one, or "
            "allow more."
        )


def _run(coroutine: Awaitable[Stamped[T]]) -> Stamped[T]:
    """Run a coroutine that never waits for a loop."""
    steps = coroutine.__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: Stamped[T] = done.value
        return result
    raise AssertionError("nothing in it waits for a loop")
