"""The pace of this client's machine at a moment: how long a fixed piece of work takes on all its processors at once.

Two runs of one service differ by what else their machines did meanwhile, and no interval of one run knows that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import numpy as np

from zerolayer.check.statistics import Floats

MOST_THREADS = 16
FLOATS = 1 << 19  # 4 MB a thread, more than a core has of its own: memory's pace is part of the machine's
PASSES = 40  # some 10 ms: longer than a scheduler lets a newcomer run before those who were there


class MachinePace:
    """Call it for the microseconds that the work takes now. Made once, as its memory is taken then."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        count = min(MOST_THREADS, len(os.sched_getaffinity(0)))
        self._parts = [np.ones(FLOATS) for _ in range(count)]
        self()  # touches the memory

    def __call__(self) -> int:
        """All processors that this process may use at once, as a server on this machine would find them."""
        threads = [threading.Thread(target=_work, args=(part,)) for part in self._parts]
        begun_ns = self._clock_ns()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (self._clock_ns() - begun_ns) // 1000


def _work(part: Floats) -> None:
    """Outside the GIL but for moments between passes."""
    for _ in range(PASSES):
        np.negative(part, out=part)
