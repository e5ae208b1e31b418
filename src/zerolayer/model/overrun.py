"""How much longer than usual the longest steps take, of steps of all kinds. Pure: no clock.

A kind that is rare has not met the machine's rare moments yet: an interrupt, a neighbour, a page that is moved. What
these do to a step is alike for all kinds, so its bound is learned from all.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

_GENERATION: Final = 4096  # steps after which the older half is forgotten
_RANK: Final = 2  # the largest one of two generations may be a freak


class Overrun:
    """``ratio``: what a step takes at most over what it usually takes, but for about one in 3,000.

    The largest of ``n`` is passed by the next one with a chance of 1 / (n + 1): who begins to learn is wrong nine times
    in the first generation, and no rule that looks back can be so less often.
    """

    def __init__(self) -> None:
        self.ratio = 1.0
        self._largest: list[float] = []  # of this generation, in order
        self._before: list[float] = []  # and of the one before
        self._count = 0

    def add(self, ratio: float) -> None:
        """A step took so many times what its kind usually takes."""
        self._count += 1
        if self._count > _GENERATION:
            self._before, self._largest, self._count = self._largest, [], 1
        largest = self._largest
        if len(largest) < _RANK or ratio > largest[0]:
            insort(largest, ratio)
            del largest[:-_RANK]
        elif self._count > 1:
            return
        known = sorted([*self._before, *largest])
        self.ratio = max(1.0, known[-_RANK] if self._before else known[-1])
