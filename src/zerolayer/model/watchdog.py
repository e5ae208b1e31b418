"""Notices a step that does not end. Pure: whoever owns the watchdog looks now and then and passes what it sees.

A step is stalled when it runs ``_FACTOR`` times its bound and at least ``_AT_LEAST_NS``; it is lost ``LOST_NS`` after
that. Time in which the owner did not look counts for little, and one look is no proof: a process that was stopped or
a machine that slept says nothing about the step.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

_FACTOR = 20
_AT_LEAST_NS = 250_000_000
_LONGEST_LOOK_NS = 500_000_000  # what one look may add to a step's age
_LOOKS = 3  # at the same step before it can be stalled
LOST_NS = 10_000_000_000


class Verdict(Enum):
    """What a look found. ``STALLED`` and ``RECOVERED`` are said once, in this order; ``LOST`` stays."""

    FINE = "fine"
    STALLED = "stalled"
    RECOVERED = "recovered"
    LOST = "lost"


class Watchdog:
    """One step at a time; times are monotonic nanoseconds.

    ``bound_ns`` gives the bound of the largest step and is asked only for a step older than ``at_least_ns``.
    """

    def __init__(self, bound_ns: Callable[[], int], *, at_least_ns: int = _AT_LEAST_NS, lost_ns: int = LOST_NS) -> None:
        self._bound_ns = bound_ns
        self._at_least_ns = at_least_ns
        self._lost_ns = lost_ns
        self._looked_ns = 0
        self._step_ns = 0  # when the step began that the last look saw; 0: none
        self._age_ns = 0
        self._looks = 0
        self._stalled_age_ns = 0  # the age at which it was called stalled; 0: it was not

    @property
    def stalled(self) -> bool:
        """Whether the step that the last look saw is over its limit."""
        return self._stalled_age_ns > 0

    def look(self, now_ns: int, step_ns: int) -> Verdict:
        """``step_ns``: when the running step began; 0 when none runs."""
        passed = min(now_ns - self._looked_ns, _LONGEST_LOOK_NS)
        self._looked_ns = now_ns
        if step_ns == 0 or step_ns != self._step_ns:
            self._step_ns, self._looks = step_ns, 1
            self._age_ns = min(now_ns - step_ns, passed) if step_ns else 0
            was, self._stalled_age_ns = self._stalled_age_ns, 0
            return Verdict.RECOVERED if was else Verdict.FINE
        self._age_ns += passed
        self._looks += 1
        if self._stalled_age_ns:
            return Verdict.LOST if self._age_ns - self._stalled_age_ns >= self._lost_ns else Verdict.FINE
        if self._looks < _LOOKS or self._age_ns < self._at_least_ns or self._age_ns < _FACTOR * self._bound_ns():
            return Verdict.FINE
        self._stalled_age_ns = self._age_ns
        return Verdict.STALLED
