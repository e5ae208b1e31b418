"""What is compiled of the cost table, in Python: slower, and to be read."""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Final

_EXACT: Final = 16  # so many decode rows have each a class of their own
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


_OVERRUNS: Final = 4096  # steps after which the older half is forgotten
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
        if self._count > _OVERRUNS:
            self._before, self._largest, self._count = self._largest, [], 1
        largest = self._largest
        if len(largest) < _RANK or ratio > largest[0]:
            insort(largest, ratio)
            del largest[:-_RANK]
        elif self._count > 1:
            return
        known = sorted([*self._before, *largest])
        self.ratio = max(1.0, known[-_RANK] if self._before else known[-1])


_WINDOW: Final = 64
_MARGIN: Final = 1.1
_HEADROOM: Final = 1.05
_SORT_EVERY: Final = 16
_MEAN_OVER: Final = 256
_GENERATION: Final = 4096
_YOUNG: Final = 17
_FADES: Final = 0.95

SAME, ANEW, UNSURE = 0, 1, 2


class Row:
    """The last measurements of one kind of step, as if the machine had its normal speed."""

    def __init__(self) -> None:
        self.last: deque[int] = deque(maxlen=_WINDOW)
        self.normal = self.bound = self.seen = 0
        self._new = 0

    @property
    def count(self) -> int:
        return len(self.last)

    def forget(self) -> None:
        self.last.clear()
        self.normal = self.bound = self._new = 0

    def add(self, elapsed_ns: int) -> bool:
        self.last.append(elapsed_ns)
        self.bound = int(max(self.last) * _MARGIN)
        self._new += 1
        if self._new < _SORT_EVERY < len(self.last):
            return False
        self._new = 0
        self.normal = sorted(self.last)[(len(self.last) - 1) // 2]
        return True


class StepTimes:
    """What steps of each kind take."""

    def __init__(self, slots: int, chunk_tokens: int) -> None:
        chunks = range(bucket_of(chunk_tokens) + 1)
        self._rows = [[Row() for _ in range(class_of(slots - (chunk > 0)) + 1)] for chunk in chunks]
        self._pace, self._overrun = Pace(), Overrun()
        self._fresh: deque[tuple[Row, int]] = deque()
        self.scale, self.backlog, self.steps = 1.0, 0.0, 0
        self._worst = [0.0, 0.0]
        self._anew = False

    @property
    def pace(self) -> float:
        return self._pace.now

    @property
    def pace_mean(self) -> float:
        return self._pace.mean

    @property
    def worst(self) -> float:
        return max(self._worst)

    def row(self, chunk: int, place: int) -> Row:
        return self._rows[chunk][place]

    def bound_ns(self, decode_rows: int, prefill_tokens: int) -> int:
        row = self._of(decode_rows, prefill_tokens)
        return int(max(row.bound, row.normal * self._overrun.ratio * _MARGIN) * self._pace.now)

    def observe(self, decode_rows: int, prefill_tokens: int, elapsed_ns: int, sure: bool) -> int:
        row, pace = self._of(decode_rows, prefill_tokens), self._pace
        if not sure and self.steps + 1 > _YOUNG >= row.seen > 0:
            return UNSURE
        self._anew = False
        self.steps += 1
        row.seen = self.steps
        if self.steps % _GENERATION == 0:
            self._worst = [self.backlog, self._worst[0]]
        if not row.normal:
            self._anew |= row.add(int(elapsed_ns / pace.now))
            return self._anew
        self._overrun.add(elapsed_ns / (row.normal * pace.now))
        pace.vote(elapsed_ns / row.normal)
        if self.steps <= _YOUNG:
            self._enter(row, elapsed_ns, pace.now)
            return self._anew
        self._fresh.append((row, elapsed_ns))
        if len(self._fresh) > AFTER:
            self._settle(AFTER)
        return self._anew

    def rest(self) -> int:
        self._anew = False
        for behind in reversed(range(len(self._fresh))):
            self._settle(behind)
        self._pace.rest()
        self._worst = [_FADES * worst for worst in self._worst]
        return self._anew

    def _of(self, decode_rows: int, prefill_tokens: int) -> Row:
        chunk = self._rows[min(bucket_of(prefill_tokens), len(self._rows) - 1)]
        return chunk[min(class_of(decode_rows), len(chunk) - 1)]

    def _settle(self, behind: int) -> None:
        row, elapsed_ns = self._fresh.popleft()
        self._enter(row, elapsed_ns, self._pace.then(behind))

    def _enter(self, row: Row, elapsed_ns: int, pace: float) -> None:
        typical = row.normal * pace
        self._anew |= row.add(int(elapsed_ns / pace))
        self.scale += (min(elapsed_ns / typical, _FREAK) - self.scale) / _MEAN_OVER
        promised = max(typical * max(1.0, self.scale), row.normal * self._pace.mean) * _HEADROOM
        self.backlog = max(0.0, self.backlog + elapsed_ns - promised)
        self._worst[0] = max(self._worst[0], self.backlog)


def bucket_of(rows: int) -> int:
    """0 for none, else the position of the power of two that is at least ``rows``, plus one."""
    return 0 if rows == 0 else (rows - 1).bit_length() + 1


def class_of(rows: int) -> int:
    """0 for none, one for each number up to 16, then four for each doubling."""
    if rows <= _EXACT:
        return rows
    shift = (rows - 1).bit_length() - 3
    return _EXACT + 4 * (shift - 2) + ((rows - 1) >> shift) - 3
