"""An event loop on a thread of its own, for callers that have none. It ends with its owner, or with the process."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
_END_S = 2.0


class Portal:
    """``run`` and ``call`` may be used on any thread. The loop starts with the first of them; a fork starts its own.

    ``at_end`` is called on the loop before it ends. It must not refer to the portal, which would then never end.
    """

    def __init__(self, at_end: Callable[[], object]) -> None:
        self._at_end = at_end
        self._lock = threading.Lock()  # work is handed to a loop before it ends, or to the next one
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._end: Callable[[], object] = _nothing

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for ``work`` to be done on the loop; what it raises is raised here. Interrupted, it is cancelled.

        Raises ``concurrent.futures.CancelledError`` where ``close`` ends the loop meanwhile.
        """
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work`` on the loop. It goes on as long as somebody holds what this returns."""
        with self._lock:
            return asyncio.run_coroutine_threadsafe(work, self._running())

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call ``function`` on the loop; nobody waits for it."""
        with self._lock:
            self._running().call_soon_threadsafe(function, *arguments)

    def tell(self, function: Callable[[], object]) -> None:
        """The same where the loop runs, else nothing. It takes no lock: a finalizer may come in the middle of all."""
        loop = self._loop
        if loop is not None and self._process == os.getpid():
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the loop. A later ``run`` starts a new one."""
        with self._lock:
            self._end()
            self._loop, self._end = None, _nothing

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop, which starts if there is none. To be called with the lock."""
        if self._loop is None or self._process != os.getpid():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(loop,), name="zerolayer-client", daemon=True)
            thread.start()
            self._loop, self._process = loop, os.getpid()
            self._end = weakref.finalize(self, _stop, loop, thread, os.getpid(), self._at_end)
        return self._loop


def _nothing() -> None:
    pass


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        while tasks := asyncio.all_tasks(loop):  # what ends may begin something: to give a booking back
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(asyncio.sleep(0))  # transports that were closed say so
        loop.close()


def _stop(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, process: int, at_end: Callable[[], object]
) -> None:
    if process == os.getpid() and not loop.is_closed():
        loop.call_soon_threadsafe(at_end)
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_END_S)
