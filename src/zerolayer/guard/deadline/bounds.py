"""When what runs is done at the latest, with all that is booked, and whether that is soon enough.

Most questions have a quick answer: if a slot's end may come later by everything that is booked, it does not matter
what of it comes before that end. Only where this does not do, ends are computed one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter, sub

from zerolayer.guard.deadline.booking import JOIN_STEPS, NEVER, Booking, Terms, Work
from zerolayer.guard.deadline.chains import begun_within, disturbed, disturbed_end
from zerolayer.guard.deadline.occupants import Occupants
from zerolayer.model.cost import Prices

_START = attrgetter("start_ns")


class Bounds:
    """``booked`` are all bookings by start, ``chains`` the same by slot, ``not_before`` as the calendar has it."""

    def __init__(
        self, occupants: Occupants, booked: list[Booking], chains: list[list[Booking]], not_before: list[int]
    ) -> None:
        slots = len(chains)
        self.alone = [0] * slots  # ends without bookings, 0 where a slot is free
        self.limits = [NEVER] * slots  # what they must not pass
        self.weight_ns = 0  # of all bookings
        self._occupants = occupants
        self._booked = booked
        self._chains = chains
        self._not_before = not_before
        self._room_ns = NEVER  # the least distance of a limit from its end, or less
        self._ends: list[int] | None = None
        self._stale = True

    def changed(self) -> None:
        """What runs has changed."""
        self._stale = True

    def booking_changed(self, weight_ns: int) -> None:
        """A booking of that weight came, or, where it is negative, went."""
        self.weight_ns += weight_ns
        self._ends = None

    def bind(self, slot: int, limit_ns: int) -> None:
        """A slot's limit is another; a later one counts from the next refresh on."""
        self.limits[slot] = limit_ns
        self._room_ns = min(self._room_ns, limit_ns - self.alone[slot])
        self._ends = None

    def refresh(self, base_ns: int, prices: Prices) -> None:
        """Compute what is needed by the other methods."""
        if self._stale:
            self._stale = False
            self.alone = self._occupants.ends(base_ns, prices)
            self._room_ns = min(map(sub, self.limits, self.alone))
            self._ends = None

    def end(self, slot: int) -> int:
        """The bound of one slot's end, 0 if it is free."""
        return disturbed_end(self.alone[slot], self._booked)

    def end_of(self, work: Work, terms: Terms, base_ns: int, prices: Prices) -> int:
        """The end of one that started now; -1 when that or its first token would be too late for its own terms."""
        occupants = self._occupants
        base = base_ns + prices.reserve_ns + occupants.pending_ns + work.chunk_ns
        first = base + (JOIN_STEPS + occupants.pending_steps + work.chunks) * prices.step_ns
        end = first + max(0, work.tokens - 1) * prices.step_ns
        for booking in self._booked:
            if booking.start_ns >= end:
                break
            end += booking.weight_ns
            if booking.start_ns < first:
                first += booking.weight_ns
        return -1 if first > terms.from_ns + terms.first_token_ns or end > terms.due_ns else end

    def ends(self) -> list[int]:
        """All of them."""
        if self._ends is None:
            self._ends = self._disturbed(0, None)
        return self._ends

    def are_kept(self) -> bool:
        """Whether no end passes its limit."""
        if self._room_ns >= self.weight_ns:
            return True
        return all(end <= limit for end, limit in zip(self.ends(), self.limits, strict=True))

    def bear(self, more_ns: int) -> bool:
        """Whether all ends could be that much later."""
        if self._room_ns - self.weight_ns >= more_ns:
            return True
        ends = self._disturbed(more_ns, None)
        return all(end <= limit for end, limit in zip(ends, self.limits, strict=True))

    def start_beside(self, wanted: Booking) -> int:
        """The start of a booking, or a later one if what runs could not bear it."""
        moved = wanted.start_ns
        if self._room_ns - self.weight_ns >= wanted.weight_ns:
            return moved
        before = self.ends()
        if max(before) > moved:
            for end, limit, was in zip(self._disturbed(0, wanted), self.limits, before, strict=True):
                if end > limit and end > was > moved:
                    moved = was
        return moved

    def _disturbed(self, more_ns: int, wanted: Booking | None) -> list[int]:
        """All ends, if ``more_ns`` were added now, and ``wanted`` were booked too.

        Bookings count where they start before an end, or, where that comes to less, as often as their slots can begin
        one within the steps that are left.
        """
        alone = [end and end + more_ns for end in self.alone] if more_ns else self.alone
        booked = self._booked
        if wanted is not None:
            place = bisect_right(booked, wanted.start_ns, key=_START)
            booked = [*booked[:place], wanted, *booked[place:]]
        ends = disturbed(alone, booked)
        over = [slot for slot, limit in enumerate(self.limits) if ends[slot] > limit]
        if over:
            ends = list(ends)
            waits = [step - self._occupants.steps for step in self._not_before]
            for slot in over:
                if ends[slot] <= self._occupants.due[slot]:  # what is booked behind it does not begin before its end
                    others = [booking for booking in booked if booking.slot != slot]
                    ends[slot] = disturbed_end(alone[slot], others)
                added = begun_within(self._occupants.left(slot), slot, self._chains, waits, wanted)
                ends[slot] = min(ends[slot], alone[slot] + added)
        return ends
