"""A machine on paper: real sockets, the real load client and a real server, and a time that goes by only when all wait.

What a program computes takes no time here, so a run is the same on every machine, however busy. Time jumps to the next
moment at which somebody wants to be woken.
"""

from __future__ import annotations

import asyncio
import math
import select
import selectors
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from zerolayer.check.network import Endpoint, Poll

LOOK_NS = 100_000  # what a look without a wait takes, so that whoever looks again and again gets somewhere
NEVER_S = 1e6
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Selector(selectors.EpollSelector):
    """Never waits. Where the loop would, it stops the loop and remembers for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.idle_s = NEVER_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0 and self.loop is not None:
            self.idle_s = NEVER_S if timeout is None else timeout
            self.loop.stop()
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """The server's loop, on the machine's time."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.clock_ns = clock_ns
        self.selector = _Selector()
        super().__init__(self.selector)
        self.selector.loop = self

    def time(self) -> float:
        return self.clock_ns() / 1e9

    def work(self) -> float:
        """All that can be done now; the seconds until there is more to do."""
        self.run_forever()
        return self.selector.idle_s


class Machine:
    """A ``Network`` whose every connection leads to one server, and its clock."""

    def __init__(self, server: Callable[[], Handle]) -> None:
        self._now_ns = 1_000_000_000
        self._loop = _Loop(self.clock)
        self._handle = self._loop.run_until_complete(_called(server))
        self._tasks: set[asyncio.Task[None]] = set()

    def clock(self) -> int:
        """Nanoseconds."""
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        """Let time go by."""
        self.wait(seconds, lambda: False)

    def wait(self, seconds: float, over: Callable[[], bool]) -> None:
        """Until so many seconds have gone by, or ``over`` says so."""
        end_ns = self._now_ns + max(LOOK_NS, round(seconds * 1e9))
        while not over():
            idle_ns = math.ceil(self._loop.work() * 1e9)
            if self._now_ns >= end_ns or over():
                return
            self._now_ns = min(end_ns, self._now_ns + max(1, idle_ns))

    def connect(self, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        """One end of a pair; the server has the other."""
        ours, theirs = socket.socketpair()
        task = self._loop.create_task(self._serve(theirs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ours

    def poll(self) -> Poll:
        """The client's wait, in which the server runs."""
        return _Poll(self)

    def close(self) -> None:
        """End every connection."""
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(_called(lambda: None))
        self._loop.close()

    async def _serve(self, sock: socket.socket) -> None:
        await self._handle(*await asyncio.open_connection(sock=sock))


class _Poll:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._epoll = machine, select.epoll()
        self.register, self.modify = self._epoll.register, self._epoll.modify
        self.unregister, self.close = self._epoll.unregister, self._epoll.close

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []

        def look() -> bool:
            found.extend(self._epoll.poll(0))
            return bool(found)

        self._machine.wait(timeout, look)
        return found


async def _called(function: Callable[[], Any]) -> Any:
    """Its result, called while the loop runs."""
    return function()
