"""Addresses that stand for several nodes, ``dns://name:port`` and its like, looked up by a client itself.

The sources are those of the servers' ``--peers`` (``zerolayer.cluster``), which need the standard library only. They
block, so they are asked on a thread; what they found is taken over by the next call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from zerolayer.client.address import Patience
from zerolayer.client.errors import InvalidAddress, NotReachable
from zerolayer.errors import StartupError

if TYPE_CHECKING:
    from zerolayer.cluster.directory import Directory

_PLAIN: Final = ("", "http", "https")
_WAIT_S: Final = 10.0  # for the first addresses
_LEAST_S: Final = 0.001  # clocks and timers need not agree to the last digit
_NS_PER_S: Final = 1_000_000_000


def is_plain(text: str) -> bool:
    """Whether this is to be read as one node's own address."""
    try:
        return "://" not in text or urlsplit(text).scheme in _PLAIN
    except ValueError:
        return True


class Discovery:
    """``texts`` name sources. ``take`` is given all addresses that they tell of, whenever they were asked.

    Raises ``InvalidAddress``.
    """

    def __init__(
        self, texts: Sequence[str], take: Callable[[Sequence[str]], None], clock_ns: Callable[[], int]
    ) -> None:
        self._texts = texts
        self._take = take
        self._clock_ns = clock_ns
        self._directory = _directory(texts)
        self._look: Future[list[str]] | None = None
        self._process = 0  # in which the look goes on
        self._found = False

    def refresh(self) -> None:
        """Take over what was found, and look again where an answer is out of date. Returns at once."""
        if self._process != os.getpid():
            self._look = None  # after a fork there is no such thread
        if self._look is not None and self._look.done():
            found, self._look = self._look.result(), None
            self._found = self._found or bool(found)
            if found:
                self._take(found)
        now_ns = self._clock_ns()
        if self._look is None and self._directory.due(now_ns):
            self._look, self._process = Future(), os.getpid()
            self._look.set_running_or_notify_cancel()  # from here on nobody can cancel it
            threading.Thread(target=_run, args=(self._directory, now_ns, self._look), daemon=True).start()

    async def ready(self, patience: Patience) -> None:
        """Return when any address is known. Only the first calls wait; raises ``NotReachable``, ``DeadlinePassed``.

        Sources that fail are asked again meanwhile; where all have answered and none names a node, nobody waits.
        """
        self.refresh()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.at_most(_WAIT_S).left_s()):
                while not self._found and (self._look is not None or self._directory.waits):
                    await self._looked()
                    self.refresh()
        patience.left_s()  # says so where it was the deadline
        if not self._found:
            raise NotReachable(f"{', '.join(self._texts)}: no node is found there. Check the name, and who answers it.")

    async def _looked(self) -> None:
        """Until the look that goes on is over; without one, until the next one is due."""
        if self._look is None:
            due_ns = self._directory.next_ns() or 0
            await asyncio.sleep(max(_LEAST_S, (due_ns - self._clock_ns()) / _NS_PER_S))
            return
        over = asyncio.wrap_future(self._look)
        try:
            await asyncio.wait([over])
        finally:
            over.cancel()  # only this wait, not the look


def _directory(texts: Sequence[str]) -> Directory:
    from zerolayer.cluster.directory import Directory  # only who names a source pays for them
    from zerolayer.cluster.sources import FORMS, sources

    try:
        return Directory(sources(texts))
    except StartupError:
        forms = ", ".join(form for form, _ in FORMS.values())
        raise InvalidAddress(
            f"The address cannot be read. Write it as http://127.0.0.1:8000, or in another of these forms: {forms}."
        ) from None


def _run(directory: Directory, now_ns: int, look: Future[list[str]]) -> None:
    """On a thread of its own, not one of a pool: the end of the process would wait for a name server that hangs."""
    look.set_result(directory.look(now_ns))
