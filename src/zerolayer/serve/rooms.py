"""The model rooms of a server: the one that answers, and, for a while after a change, the one that it came after.

Between the two one pointer is swapped, on the loop, between two requests. Requests that the old room let in stay with
it to their end; all others are the new room's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zerolayer.errors import Unavailable
from zerolayer.front.step_account import Meter
from zerolayer.observe.compute import ComputeMeter, FurtherSlots
from zerolayer.serve.room import ModelRoom

_STANDS: Final = "the engine stands still; send the request again in a moment"


class Rooms:
    """All methods run on the loop. ``current`` answers; ``leaving`` still has requests, or is None."""

    def __init__(self, current: ModelRoom, meter: ComputeMeter) -> None:
        self.current = current
        self.leaving: ModelRoom | None = None
        self._meter = meter
        self._further = False  # whether the current room's slots are the meter's second half
        self._held_up = False

    def __iter__(self) -> Iterator[ModelRoom]:
        yield self.current
        if self.leaving is not None:
            yield self.leaving

    @property
    def running(self) -> int:
        """Requests that hold a slot of whichever room."""
        return sum(room.dispatcher.running for room in self)

    @property
    def used_tokens(self) -> int:
        """Slot tokens in use, in whichever room."""
        return sum(room.dispatcher.used_tokens for room in self)

    @property
    def taken(self) -> int:
        """Slots that are not free, in whichever room."""
        return sum(room.admission.calendar.taken for room in self)

    @property
    def alive(self) -> bool:
        """Whether the steps of all rooms end."""
        return not any(room.supervisor.troubled for room in self)

    def step_began_ns(self) -> int:
        """When the step that runs began; 0 when none does."""
        return min([began for room in self if (began := room.steps.step_began_ns)], default=0)

    def next_meter(self) -> Meter:
        """What counts the slots of the room that will come after the current one."""
        return self._meter if self._further else FurtherSlots(self._meter, self.current.info.slots + 1)

    def swap(self, new: ModelRoom) -> None:
        """From now on ``new`` answers; the meter that it was built with was ``next_meter``."""
        self.leaving, self.current, self._further = self.current, new, not self._further

    def left(self) -> None:
        """Nobody is in the old room any more."""
        self.leaving, self._held_up = None, False

    def sweep(self, now_ns: int) -> None:
        """Several times a second. A step of the old room that does not end holds the new one up as well."""
        for room in self:
            room.sweep(now_ns)
        held_up = self.leaving is not None and self.leaving.supervisor.troubled
        if held_up is not self._held_up:
            self._held_up = held_up
            self.current.guard.stall(Unavailable(_STANDS) if held_up else None)
