"""How fast the machine is now: one factor for steps of every kind. Pure: no clock.

A neighbour on the same host, heat or a lowered clock make all steps longer, for seconds or for good. Each step votes
with its ratio to what its kind normally takes. The pace rises after five slow steps of seventeen, falls after thirteen
quick ones, and takes no notice of single ones: those are in the mean. What its kind normally takes is learned from a
step's time over the pace of its neighbours, where that is a quarter off what the machine is used to: less than that has
other reasons too, such as longer contexts, which differ by kind.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_LAST: Final = 17  # votes
_SLOW: Final = 5  # of them make the pace rise
AFTER: Final = 4  # votes before a step, or after it, that say with it what the pace was then
_NOISE: Final = 1.15  # over what the machine is used to
_ALIKE: Final = 1.25
_USED_TO: Final = 1024  # votes in a row after which a pace is no spell any more
_MEAN_OF: Final = 128
_FREAK: Final = 30.0  # a step that took longer than so many says nothing about the others


class Pace:
    """``now``: how many times longer than normal a step typically takes; ``mean``: the same with all outliers.

    Never below 1: a machine that becomes quicker than it was known to be shows it by kind. To scale kinds that do not
    run by that of others would promise too much, should these have had longer contexts before.
    """

    def __init__(self) -> None:
        self.now = 1.0
        self._used_to = 1.0
        self._votes: deque[float] = deque(maxlen=_LAST)
        self._usual = 0  # votes in a row for the pace that the machine is used to, as it is nearly always
        self._apart = 0  # votes in a row that were of another pace than it is used to
        self._all: deque[float] = deque(maxlen=_MEAN_OF)
        self._sum = 0.0

    @property
    def mean(self) -> float:
        """Over the last ``_MEAN_OF`` steps; as many as were not run since the last rest count as usual."""
        return (self._sum + (_MEAN_OF - len(self._all)) * self._used_to) / _MEAN_OF

    def vote(self, ratio: float) -> None:
        """A step took ``ratio`` times what its kind normally takes."""
        ratio = min(ratio, _FREAK)
        self._sum += ratio - (self._all[0] if len(self._all) == _MEAN_OF else 0.0)
        self._all.append(ratio)
        votes = self._votes
        votes.append(ratio)
        known = self._used_to
        self._usual = self._usual + 1 if known / _ALIKE <= ratio <= known * _NOISE else 0
        if self._usual >= _LAST:
            self.now, self._apart = known, 0
            return
        ordered = sorted(votes)
        self.now = self._near(ordered[-_SLOW], _NOISE) if len(ordered) >= _SLOW else self._used_to
        median = self._near(ordered[len(ordered) // 2], _ALIKE)
        self._apart = 0 if median == self._used_to else self._apart + 1
        if self._apart >= _USED_TO:
            self._used_to = median
            self._apart = self._usual = 0

    def then(self, behind: int = AFTER) -> float:
        """What the pace was at the vote that has so many others behind it: that of those before it or of those after.

        At the border of a spell they differ, and it belongs to whom it is like.
        """
        if self._usual >= _LAST:
            return self._used_to
        votes = list(self._votes)
        at = len(votes) - 1 - behind
        own, before, after = votes[at], sorted(votes[max(0, at - AFTER) : at + 1]), sorted(votes[at:])
        earlier, later = before[len(before) // 2], after[len(after) // 2]
        return self._near(earlier if abs(earlier - own) <= abs(later - own) else later, _ALIKE)

    def rest(self) -> None:
        """No steps run: what follows may be another spell. Whoever is refused for a slow one would never end it."""
        self._votes.clear()
        self._all.clear()
        self._sum = 0.0
        self.now = self._used_to
        self._apart = self._usual = 0

    def _near(self, ratio: float, noise: float) -> float:
        known = self._used_to
        return known if known / _ALIKE <= ratio <= known * noise else max(1.0, ratio)
