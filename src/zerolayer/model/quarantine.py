"""Whether the device may serve: a circuit breaker on what its probes show. Pure: no clock, no threads.

A probe is a heartbeat (``heartbeat.py``): a known input whose output is known bit by bit. A step that fails or does
not end is a *miss*; after three in a row, or one *wrong* output, the device is in quarantine: it gets no requests,
only, after a pause, probes (half open). It returns when every program gave its known output again; if one does not,
the next pause is twice as long. Source of the pattern: Nygard, Release It!, 2007, "Circuit Breaker".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

MISSES: Final = 3
APART_NS: Final = 100_000_000  # misses that are closer together are one: all streams of a step fail at once
FIRST_PAUSE_NS: Final = 500_000_000
LONGEST_PAUSE_NS: Final = 30_000_000_000
RETURNS: Final = 8  # attempts at a return that fail before the process gives up: about two minutes


class State(Enum):
    """Where the device stands."""

    SERVING = "serving"
    QUARANTINED = "quarantined"
    HALF_OPEN = "half-open"  # probes run, requests do not


class Event(Enum):
    """What happened to it."""

    RIGHT = "right"  # a probe gave its known output
    ALL_RIGHT = "all right"  # the last of the probes that a return needs
    MISS = "miss"
    LAST_MISS = "last miss"
    WRONG = "wrong"
    PAUSE_OVER = "pause over"


class Action(Enum):
    """What follows."""

    NOTHING = "nothing"
    PROBE = "probe"
    CLOSE = "close"
    OPEN = "open"


TABLE: Final[Mapping[tuple[State, Event], tuple[State, Action]]] = {
    (State.SERVING, Event.RIGHT): (State.SERVING, Action.NOTHING),
    (State.SERVING, Event.ALL_RIGHT): (State.SERVING, Action.NOTHING),
    (State.SERVING, Event.MISS): (State.SERVING, Action.PROBE),
    (State.SERVING, Event.LAST_MISS): (State.QUARANTINED, Action.CLOSE),
    (State.SERVING, Event.WRONG): (State.QUARANTINED, Action.CLOSE),
    (State.SERVING, Event.PAUSE_OVER): (State.SERVING, Action.NOTHING),
    (State.QUARANTINED, Event.RIGHT): (State.QUARANTINED, Action.NOTHING),  # of a beat that was under way
    (State.QUARANTINED, Event.ALL_RIGHT): (State.QUARANTINED, Action.NOTHING),
    (State.QUARANTINED, Event.MISS): (State.QUARANTINED, Action.NOTHING),
    (State.QUARANTINED, Event.LAST_MISS): (State.QUARANTINED, Action.NOTHING),
    (State.QUARANTINED, Event.WRONG): (State.QUARANTINED, Action.NOTHING),
    (State.QUARANTINED, Event.PAUSE_OVER): (State.HALF_OPEN, Action.PROBE),
    (State.HALF_OPEN, Event.RIGHT): (State.HALF_OPEN, Action.PROBE),
    (State.HALF_OPEN, Event.ALL_RIGHT): (State.SERVING, Action.OPEN),
    (State.HALF_OPEN, Event.MISS): (State.QUARANTINED, Action.NOTHING),
    (State.HALF_OPEN, Event.LAST_MISS): (State.QUARANTINED, Action.NOTHING),
    (State.HALF_OPEN, Event.WRONG): (State.QUARANTINED, Action.NOTHING),
    (State.HALF_OPEN, Event.PAUSE_OVER): (State.HALF_OPEN, Action.NOTHING),
}


class Quarantine:
    """One device. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self.state = State.SERVING
        self._misses = 0
        self._missed_ns: int | None = None
        self._right = 0
        self._failed_returns = 0
        self._due_ns = 0

    @property
    def closed(self) -> bool:
        """Whether the device gets no requests."""
        return self.state is not State.SERVING

    @property
    def hopeless(self) -> bool:
        """Whether so many returns failed that a new process should try."""
        return self._failed_returns >= RETURNS

    def right(self, now_ns: int, programs: int) -> Action:
        """A probe gave its known output; a return needs as many as there are ``programs``."""
        self._misses = 0
        self._right += 1
        return self._take(Event.ALL_RIGHT if self._right >= programs else Event.RIGHT, now_ns)

    def missed(self, now_ns: int) -> Action:
        """A step failed, or does not end."""
        if self._missed_ns is not None and now_ns - self._missed_ns < APART_NS:
            return Action.NOTHING
        self._missed_ns = now_ns
        self._misses += 1
        return self._take(Event.LAST_MISS if self._misses >= MISSES else Event.MISS, now_ns)

    def wrong(self, now_ns: int) -> Action:
        """A probe gave another output than the known one."""
        return self._take(Event.WRONG, now_ns)

    def look(self, now_ns: int) -> Action:
        """Several times a second: whether a pause is over."""
        if self.state is State.QUARANTINED and now_ns >= self._due_ns:
            return self._take(Event.PAUSE_OVER, now_ns)
        return Action.NOTHING

    def _take(self, event: Event, now_ns: int) -> Action:
        was = self.state
        self.state, action = TABLE[was, event]
        if self.state is State.QUARANTINED and was is not State.QUARANTINED:
            self._failed_returns += was is State.HALF_OPEN
            self._due_ns = now_ns + min(LONGEST_PAUSE_NS, FIRST_PAUSE_NS << self._failed_returns)
        if self.state is not was:
            self._right = self._misses = 0
        if action is Action.OPEN:
            self._failed_returns = 0
        return action
