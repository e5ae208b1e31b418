"""Python's garbage collector at moments that the event loop chooses.

The interpreter collects wherever it happens to allocate, between two steps too, where the next step waits for it and
every object that it looks at is out of the caches: some 0.4 ms there, 0.1 ms on the loop. So the loop collects when it
has sent a step's tokens and the next step computes. Only where the loop does not come to it does the interpreter do it
by itself.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

_BY_ITSELF: Final = 3000  # new objects, a look at which takes half a millisecond
_SHARE: Final = 200  # times the last full collection took: another one is not begun before


class Collector:
    """Of the process. Idle until ``start``. All on the loop."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._usual: tuple[int, int, int] | None = None  # thresholds: new objects, collections of them, and of those
        self._full_due_ns = 0

    def start(self) -> None:
        """From now on ``look`` collects."""
        if self._usual is None:
            self._usual = gc.get_threshold()
            gc.set_threshold(_BY_ITSELF, *self._usual[1:])

    def stop(self) -> None:
        """The interpreter does it again. Idempotent."""
        if self._usual is not None:
            gc.set_threshold(*self._usual)
            self._usual = None

    def look(self) -> None:
        """Collect what the interpreter would have collected by now; at a moment when nobody waits."""
        usual = self._usual
        if usual is None:
            return
        new, middle, old = gc.get_count()
        if new < usual[0]:
            return
        if middle < usual[1]:
            gc.collect(0)
            return
        began = self._clock_ns()
        if old < usual[2] or began < self._full_due_ns:
            gc.collect(1)
            return
        gc.collect()
        ended = self._clock_ns()
        self._full_due_ns = ended + _SHARE * (ended - began)
