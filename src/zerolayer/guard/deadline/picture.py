"""The calendar as people see it: what runs in each slot until when at the latest, and what is booked behind it."""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.guard.deadline.booking import Booking
from zerolayer.guard.deadline.bounds import Bounds
from zerolayer.guard.deadline.occupants import Occupants


class Picture:
    """Reads, never changes. Ends are as good as the calendar's last look at itself (``Calendar.is_feasible``)."""

    def __init__(self, bounds: Bounds, occupants: Occupants, booked: Sequence[Booking], free: Sequence[int]) -> None:
        self._bounds = bounds
        self._occupants = occupants
        self._booked = booked
        self._free = free

    def ends(self) -> list[tuple[int, int] | None]:
        """By slot the bound of its end and its deadline, monotonic nanoseconds; None where it is free."""
        free, due = set(self._free), self._occupants.due
        return [None if slot in free else (self._bounds.end(slot), due[slot]) for slot in range(len(due))]

    def bookings(self) -> Sequence[Booking]:
        """By their starts."""
        return tuple(self._booked)
