"""Turns on the cores, where two engines are in one process for a while: one computes at a time, whoever asked first.

Threads of two engines on the same cores would wait for one another in the middle of their steps. So they take turns,
step by step, and whoever has just had one stands behind whoever waits: a step waits for one turn of the other at most,
which is what it may cost (``cost.together``).
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final

Turn = AbstractContextManager[None]
ALONE: Final[Turn] = nullcontext()
"""The turn of an engine that has the cores for itself."""


class SharedCores:
    """A context manager for any number of threads; not to be entered twice by one. Turns go in the order of asking."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def pass_on(self) -> None:
        """In the middle of one's turn: whoever waits goes first."""
        self.__exit__(None, None, None)
        self.__enter__()

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()  # handed over by whoever leaves

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
