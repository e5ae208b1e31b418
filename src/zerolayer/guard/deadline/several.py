"""Several slots for one request: all of them now, or none. Nothing is booked for it, because a booking is one slot."""

from __future__ import annotations

from zerolayer.guard.deadline.booking import Terms, Work
from zerolayer.guard.deadline.calendar import Calendar


def claim_all(calendar: Calendar, work: Work, terms: Terms, count: int) -> list[int]:
    """``count`` slots for ``work`` each, or none where that would break a promise, their own included."""
    if calendar.free < count:
        return []
    margins = [(margin, margin.margin_ns) for booking in calendar.bookings for margin in booking.margins]
    slots: list[int] = []
    while len(slots) < count:
        slot = calendar.claim(work, terms)
        if slot < 0:
            give_back(calendar, slots)
            for margin, margin_ns in margins:  # as if nobody had asked
                margin.margin_ns = margin_ns
            return []
        slots.append(slot)
    return slots


def give_back(calendar: Calendar, slots: list[int]) -> None:
    """Release them, the last one first, so that they are handed out in the order that they had."""
    for slot in reversed(slots):
        calendar.release(slot)
