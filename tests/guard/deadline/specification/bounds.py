"""When what runs is done at the latest, with all that is booked, and whether that is soon enough.

Most questions have a quick answer: if a slot's end may come later by everything that is booked, it does not matter
what of it comes before that end. Only where this does not do, ends are computed one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from specification.booking import JOIN_STEPS, NEVER, Booking, Terms, Work
from specification.chains import begun_within, disturbed, disturbed_end
from specification.occupants import Occupants
from zerolayer.model.cost import Prices

_START = attrgetter("start_ns")
_DIGITS = 8  # binary ones of a rounded price


class Bounds:
    """``booked`` are all bookings by start, ``chains`` the same by slot, ``not_before`` as the calendar has it."""

    def __init__(
        self, occupants: Occupants, booked: list[Booking], chains: list[list[Booking]], not_before: list[int]
    ) -> None:
        slots = len(chains)
        self.limits = [NEVER] * slots  # what ends must not pass
        self.last = [NEVER] * slots  # number of the step with which a slot is done at the latest; NEVER: it is free
        self._occupants = occupants
        self._booked = booked
        self._chains = chains
        self._not_before = not_before
        self._base_ns, self._prices = 0, Prices()
        # A slot's limit less its steps at a price that is rounded up, so that it holds until the price is another one:
        # from one step to the next all ends move alike.
        self._starts = [NEVER] * slots
        self._step_ns = 0
        self._room_ns: int | None = None  # the least distance of a limit from its end, or less
        self._span: tuple[int, int] | None = None  # first and last step with which a slot is done
        self.weight_ns = 0  # of all bookings
        self._alone: list[int] | None = None  # ends without bookings, 0 where a slot is free
        self._ends: list[int] | None = None

    def changed(self, slot: int) -> None:
        """What runs in ``slot`` has changed."""
        self.last[slot] = self._occupants.last_step(slot) or NEVER
        self._span = None
        self._start(slot)
        self.passed()

    def passed(self) -> None:
        """A step has ended, or fewer chunks wait."""
        self._room_ns = self._alone = self._ends = None

    def booking_changed(self, weight_ns: int) -> None:
        """A booking of that weight came, or, where it is negative, went."""
        self.weight_ns += weight_ns
        self._ends = None

    def bind(self, slot: int, limit_ns: int) -> None:
        """A slot's limit is another."""
        self.limits[slot] = limit_ns
        self._start(slot)
        self._room_ns = self._ends = None

    def refresh(self, base_ns: int, prices: Prices) -> None:
        """What the other methods count from. They are exact from here until the next change."""
        if base_ns == self._base_ns and prices is self._prices:
            return
        self._base_ns, self._prices = base_ns, prices
        unit = 1 << max(0, prices.step_ns.bit_length() - _DIGITS)
        step_ns = -(-prices.step_ns // unit) * unit
        if step_ns != self._step_ns:
            self._step_ns = step_ns
            for slot in range(len(self.last)):
                self._start(slot)
        self.passed()

    def _start(self, slot: int) -> None:
        last = self.last[slot]
        self._starts[slot] = NEVER if last == NEVER else self.limits[slot] - last * self._step_ns

    @property
    def room_ns(self) -> int:
        """How much later all ends could be, or less."""
        if self._room_ns is None:
            occupants = self._occupants
            for slot in occupants.unconfirmed:  # its steps depend on what waits before it
                self.last[slot] = occupants.last_step(slot)
                self._span = None
                self._start(slot)
            steps, waits = occupants.steps * self._step_ns, occupants.pending_ns
            self._room_ns = min(self._starts) + steps - waits - self._base_ns - self._prices.reserve_ns
        return self._room_ns

    def end_of_step(self, step: int) -> int:
        """The bound of its end without bookings, or a little later."""
        left = (step - self._occupants.steps) * self._step_ns
        return self._base_ns + self._prices.reserve_ns + self._occupants.pending_ns + left

    def _fits(self, more_ns: int) -> bool:
        """Whether what bookings and ``more_ns`` add to the last of all ends, and so at most to others, is no matter."""
        room_ns = self.room_ns
        if room_ns >= self.weight_ns + more_ns:
            return True
        final, waits = self.end_of_step(self._steps_between()[1]), bool(self._occupants.unconfirmed)
        return room_ns >= disturbed_end(final + more_ns, self._booked, waits=waits) - final

    def _steps_between(self) -> tuple[int, int]:
        if self._span is None:
            last = [step for step in self.last if step != NEVER] or [self._occupants.steps]
            self._span = (min(last), max(last))
        return self._span

    @property
    def alone(self) -> list[int]:
        """Ends without bookings, 0 where a slot is free."""
        if self._alone is None:
            self._alone = self._occupants.ends(self._base_ns, self._prices)
        return self._alone

    def end(self, slot: int) -> int:
        """The bound of one slot's end, 0 if it is free."""
        alone = self._occupants.end(slot, self._base_ns, self._prices) if self._alone is None else self._alone[slot]
        return disturbed_end(alone, self._booked, waits=slot in self._occupants.unconfirmed) if alone else 0

    def typical_ends(self, first: int) -> list[int]:
        """The ends as a rule of slots from number ``first`` on."""
        origin, rate = self._base_ns + self._prices.reserve_ns, self._prices.rate
        ends = [self.end(slot) for slot in range(first, len(self.limits))]
        return [self._base_ns + int((end - origin) / rate) if end else 0 for end in ends]

    def read_ns(self, work: Work) -> int:
        """When the prompt of one that started now is read at the latest, with those of all who start before that."""
        occupants, prices = self._occupants, self._prices
        steps = JOIN_STEPS + occupants.pending_steps + work.chunks
        read = self._base_ns + prices.reserve_ns + occupants.pending_ns + work.chunk_ns + steps * prices.step_ns
        return disturbed_end(read, self._booked, waits=True)

    def end_of(self, work: Work, terms: Terms) -> int:
        """The end of one that started now; -1 when that or its first token would be too late for its own terms."""
        occupants, prices = self._occupants, self._prices
        base = self._base_ns + prices.reserve_ns + occupants.pending_ns + work.chunk_ns
        first = base + (JOIN_STEPS + occupants.pending_steps + work.chunks) * prices.step_ns
        end = first + max(0, work.tokens - 1) * prices.step_ns
        for booking in self._booked:
            if booking.start_ns > end:
                break
            end += booking.weight_ns
            if booking.start_ns <= first:
                first += booking.weight_ns
        return -1 if first > terms.from_ns + terms.first_token_ns or end > terms.due_ns else end

    def ends(self) -> list[int]:
        """All of them."""
        if self._ends is None:
            self._ends = self._disturbed(0, None)
        return self._ends

    def are_kept(self) -> bool:
        """Whether no end passes its limit."""
        if self._fits(0):
            return True
        return all(end <= limit for end, limit in zip(self.ends(), self.limits, strict=True))

    def bear(self, more_ns: int) -> bool:
        """Whether all ends could be that much later."""
        if self._fits(more_ns):
            return True
        ends = self._disturbed(more_ns, None)
        return all(end <= limit for end, limit in zip(ends, self.limits, strict=True))

    def start_beside(self, wanted: Booking) -> int:
        """The start of a booking, or a later one if what runs could not bear it."""
        moved = wanted.start_ns
        if self._fits(wanted.weight_ns):
            return moved
        before = self.ends()
        if max(before) >= moved:
            for end, limit, was in zip(self._disturbed(0, wanted), self.limits, before, strict=True):
                if end > limit and end > was >= moved:
                    moved = was + 1
        return moved

    def _disturbed(self, more_ns: int, wanted: Booking | None) -> list[int]:
        """All ends, if ``more_ns`` were added now, and ``wanted`` were booked too.

        Bookings count where they start before an end; where that is too much, only as often as their slots can begin
        one within the steps that are left.
        """
        alone = [end and end + more_ns for end in self.alone] if more_ns else self.alone
        booked = self._booked
        if wanted is not None:
            place = bisect_right(booked, wanted.start_ns, key=_START)
            booked = [*booked[:place], wanted, *booked[place:]]
        unconfirmed = self._occupants.unconfirmed
        ends = disturbed(alone, booked, wait=bool(unconfirmed))
        over = [slot for slot, limit in enumerate(self.limits) if ends[slot] > limit]
        if over:
            ends = list(ends)
            for slot in over:
                ends[slot] = self._closer(slot, alone[slot], wanted)
        return ends

    def _closer(self, slot: int, alone: int, wanted: Booking | None) -> int:
        """What is booked in its own slot does not begin before its end, or only where that is no matter."""
        end, waits = alone, slot in self._occupants.unconfirmed
        not_yet, left = [step - self._occupants.steps for step in self._not_before], self._occupants.left(slot)
        while True:
            later = alone + begun_within(left, end, slot, self._chains, not_yet, wanted, waits=waits)
            if later == end:
                return end
            end = later
