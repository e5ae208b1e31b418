"""The life of one node that was started for a device, as its parent sees it. Pure: no processes, no clock.

A child that ends is started again, at once the first time and then after pauses that double; after a minute in health
it counts as new. One that was ready and gives no more sign of life is killed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

SILENCE_NS: Final = 15_000_000_000  # without a sign of life: its loop stands still, or its engine does
FIRST_PAUSE_NS: Final = 250_000_000
LONGEST_PAUSE_NS: Final = 30_000_000_000
HEALTHY_NS: Final = 60_000_000_000


class State(Enum):
    """Where a child is in its life."""

    WAITING = "waiting"  # for the end of a pause
    STARTING = "starting"
    READY = "ready"
    HUNG = "hung"  # and killed
    LEAVING = "leaving"  # it was told to end
    GONE = "gone"  # for good


class Event(Enum):
    """What happens to a child."""

    DUE = "due"
    TOLD_READY = "told ready"
    EXITED = "exited"
    SILENT = "silent"
    STOP = "stop"


class Action(Enum):
    """What its parent does then."""

    NOTHING = "nothing"
    START = "start"
    TELL = "tell"  # people, that it is ready
    PAUSE = "pause"
    KILL = "kill"
    END = "end"  # SIGTERM


TABLE: Final[Mapping[tuple[State, Event], tuple[State, Action]]] = {
    (State.WAITING, Event.DUE): (State.STARTING, Action.START),
    (State.WAITING, Event.STOP): (State.GONE, Action.NOTHING),
    (State.STARTING, Event.TOLD_READY): (State.READY, Action.TELL),
    (State.STARTING, Event.EXITED): (State.WAITING, Action.PAUSE),
    (State.STARTING, Event.STOP): (State.LEAVING, Action.END),
    (State.READY, Event.SILENT): (State.HUNG, Action.KILL),
    (State.READY, Event.EXITED): (State.WAITING, Action.PAUSE),
    (State.READY, Event.STOP): (State.LEAVING, Action.END),
    (State.HUNG, Event.EXITED): (State.WAITING, Action.PAUSE),
    (State.HUNG, Event.STOP): (State.LEAVING, Action.NOTHING),
    (State.LEAVING, Event.EXITED): (State.GONE, Action.NOTHING),
    (State.LEAVING, Event.STOP): (State.LEAVING, Action.END),  # asked twice: now
}
"""What is not in it changes nothing."""


class Child:
    """One of them. Times are monotonic nanoseconds."""

    def __init__(self, silence_ns: int = SILENCE_NS) -> None:
        self._silence_ns = silence_ns
        self.state = State.WAITING
        self.due_ns = 0  # when the pause is over
        self._failures = 0
        self._ready_ns: int | None = None
        self._alive_ns = 0

    def take(self, event: Event, now_ns: int) -> Action:
        """What to do about ``event``."""
        self.state, action = TABLE.get((self.state, event), (self.state, Action.NOTHING))
        if action is Action.TELL:
            self._ready_ns = self._alive_ns = now_ns
        elif action is Action.PAUSE:
            healthy = self._ready_ns is not None and now_ns - self._ready_ns >= HEALTHY_NS
            self._failures = 1 if healthy else self._failures + 1
            self._ready_ns = None
            self.due_ns = now_ns + self.pause_ns
        return action

    def alive(self, now_ns: int) -> None:
        """It gave a sign of life."""
        self._alive_ns = now_ns

    def look(self, now_ns: int) -> Event | None:
        """What the time alone makes happen."""
        if self.state is State.WAITING and now_ns >= self.due_ns:
            return Event.DUE
        if self.state is State.READY and now_ns - self._alive_ns >= self._silence_ns:
            return Event.SILENT
        return None

    @property
    def pause_ns(self) -> int:
        """The pause after the last failure."""
        return min(LONGEST_PAUSE_NS, FIRST_PAUSE_NS << min(self._failures - 1, 16))
