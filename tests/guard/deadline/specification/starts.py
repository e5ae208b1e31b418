"""When a booking can start: the earliest time that suits it, what runs, and all that is booked already. Pure.

A start is planned for when its slot is typically free. Its client can be held until the slot is, for as long as its own
limits allow; where the bound of that time is further away, the start is later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter

from specification.agenda import Agenda
from specification.booking import JOIN_STEPS, NEVER, Booking, Terms, Work
from specification.occupants import Occupants
from zerolayer.guard.deadline.booking import EARLY_NS, Room
from zerolayer.model.cost import Prices

_START = attrgetter("start_ns")
_GAP = 10  # eighths of a service: the time that is left for who comes without a booking
_ROUNDS = 24  # of looking for a start that suits everybody
_SOON_NS = 1_000_000
_LEAD_SHARE = 12  # starts lie that part of a service early: to be held for a moment costs less than a slot at rest


class Moment:
    """What one decision rests on. ``base_ns`` is where the count of steps begins; ``busy``: the engine has work."""

    __slots__ = ("base_ns", "busy", "now_ns", "prices")

    def __init__(self, now_ns: int, base_ns: int, prices: Prices, *, busy: bool) -> None:
        self.now_ns, self.base_ns, self.prices, self.busy = now_ns, base_ns, prices, busy


class Starts:
    """Reads occupants and agenda; books only what it was told to."""

    def __init__(
        self, slots: int, occupants: Occupants, agenda: Agenda, *, grace_ns: int, horizon_ns: int, reserved: int
    ) -> None:
        self._slots, self._reserved = slots, reserved
        self._occupants, self._agenda, self._bounds = occupants, agenda, agenda.bounds
        self._grace_ns, self._horizon_ns = grace_ns, horizon_ns

    def book(
        self,
        work: Work,
        terms: Terms,
        at: Moment,
        *,
        spaced: Callable[[int], int] | None,
        soft: bool,
        room: Room,
        waited: bool,
    ) -> Booking | None:
        """A booking with the earliest start, in the agenda; None when it would be beyond horizon or patience.

        ``waited``: its client was refused without a booking before.
        """
        prices, agenda, demands = at.prices, self._agenda, self._agenda.demands
        plain, first = work.need_ns(prices) + prices.spent_ns, work.first_ns(prices) + prices.spent_ns
        weight, typical = work.weight_ns(prices), work.typical_ns(prices, self._slots - 1)
        booking = Booking(0, -1, work, terms, work.steps, typical, plain, weight, soft=soft, first_ns=first)
        bound = self._earliest(booking, at)
        if bound == NEVER:
            return None
        # Whoever comes early has that much less of its own limits left at its start.
        end_ns, first_token_ns = terms.end_ns - EARLY_NS, terms.first_token_ns - EARLY_NS
        spares = demands.set_aside(booking, end_ns - plain, first_token_ns - first)
        if spares is None or not demands.bear(booking, waited=waited):
            return None
        longest, read = booking.hold_ns, self._waiting_until_ns(at)
        begun_ns = terms.patience_ns - booking.need_ns  # at the latest, however long its client may be held
        if bound > begun_ns:
            return None
        # Prompts that wait now and are not read by its start are the first to take from its spare.
        ready = read - min(spare for _, spare in spares)
        left = 0
        if room is Room.GAP:  # whoever comes joins first
            left = booking.typical_ns * _GAP // 8 + JOIN_STEPS * prices.step_ns
        booking.start_ns = max(booking.start_ns + left, bound - longest)
        booking.strict = terms.per_token_ns < prices.stall_ns
        last = min(at.now_ns + self._horizon_ns, begun_ns)
        apart = self._distance_ns(booking)
        for _ in range(_ROUNDS):
            wanted = self._apart(booking.start_ns, apart)
            wanted = booking.start_ns = wanted if spaced is None else spaced(wanted)
            moved = self._undisturbed(booking, ready, at)
            if moved > last:
                return None
            if moved == wanted:
                booking.lends = room is not Room.NONE and not booking.strict and not agenda.strict
                lent_ns = self._lent_ns(booking, longest)
                booking.hold_ns = max(0, min(longest, max(bound - moved, lent_ns), begun_ns - moved))
                agenda.add(booking)
                demands.add(booking, spares)
                booking.awaits_ns = max(0, read - moved)
                demands.charge(booking, booking.awaits_ns)
                return booking
            booking.start_ns = moved
        return None

    def _lent_ns(self, booking: Booking, longest: int) -> int:
        """For how long its slot may be lent after its start: as long as it takes itself, if its limits leave that.

        A quarter is for who is booked behind it. Who allows no foreign chunk does not lend: nobody is booked beside it
        until it ends at the latest.
        """
        return min(longest * 3 // 4, booking.need_ns) if booking.lends else 0

    def tell(self, work: Work, terms: Terms, at: Moment, *, spaced: Callable[[int], int] | None = None) -> int | None:
        """When all that is booked has begun and a slot is typically free. Nothing is held then, and nothing promised.

        None when that is beyond horizon or patience, or when its limits leave no room even on an idle engine.
        """
        prices = at.prices
        need, first_room = work.need_ns(prices), terms.first_token_ns - work.first_ns(prices)
        typical = work.typical_ns(prices, self._slots - 1)
        wanted = Booking(0, -1, work, terms, work.steps, typical, need, work.weight_ns(prices))
        if self._earliest(wanted, at) == NEVER or need > terms.end_ns or first_room < 0:
            return None
        if self._agenda.booked:
            ahead = self._agenda.booked[-1]  # one that gives way is not made to: its client would have come in vain
            behind = ahead.typical_ns if ahead.soft else self._distance_ns(wanted)
            wanted.start_ns = max(wanted.start_ns, ahead.start_ns + behind)
        last = min(at.now_ns + self._horizon_ns, terms.patience_ns - need)
        for _ in range(_ROUNDS):
            moved = self._undisturbed(wanted, self._waiting_until_ns(at) - first_room, at)
            moved = moved if spaced is None else spaced(moved)
            if moved > last:
                return None
            if moved == wanted.start_ns:
                return moved
            wanted.start_ns = moved
        return None

    def _earliest(self, booking: Booking, at: Moment) -> int:
        """Give a booking the slot that can take one more first, and a start.

        Returns when it must be possible to begin at the latest; ``NEVER`` when no slot is for it.
        """
        agenda, prices, first = self._agenda, at.prices, 0 if booking.terms.urgent else self._reserved
        if first >= self._slots:
            return NEVER
        base, rate = at.base_ns, prices.rate
        origin = base - (base + prices.reserve_ns) / rate  # typical ends lie on a line through the bounds
        opens, tails = (agenda.opens[first:], agenda.tails[first:]) if first else (agenda.opens, agenda.tails)
        slot, bound, opening, tail = -1, NEVER, min(opens), min(tails)
        if opening != NEVER:
            slot = opens.index(opening) + first
            bound = self._bounds.end(slot)
        if bound and origin + bound / rate > tail:
            slot = tails.index(tail) + first
            bound = self._bounds.end(slot)
        wait = agenda.not_before[slot] - self._occupants.steps
        if wait > 0 and at.busy:
            shaped = base + prices.reserve_ns + wait * prices.step_ns + self._occupants.pending_ns
            bound = max(bound, shaped)
        start, lead = at.now_ns + _SOON_NS, booking.typical_ns // _LEAD_SHARE
        if bound:
            start = max(start, int(origin + bound / rate) - lead)
            bound += agenda.unbooked * booking.weight_ns  # the others are counted in it
            if bound < at.now_ns:  # late by t: the best guess is that it needs as long again
                start = bound = 2 * at.now_ns - bound
        for place, ahead in enumerate(agenda.chains[slot]):
            start = max(start - lead, ahead.start_ns) + ahead.typical_ns
            bound = max(bound, ahead.latest_ns) if ahead.lends else bound
            follow = ahead.next_ns if place or agenda.follows[slot] else ahead.last_ns
            bound = follow(self._grace_ns, bound or 1)
        booking.slot, booking.start_ns = slot, max(start, at.now_ns + _SOON_NS)  # whoever is ahead may be late
        return bound

    def _waiting_until_ns(self, at: Moment) -> int:
        """When the prompts that are admitted have been read, but for the reserve, which is in what is booked.

        0 where none waits.
        """
        steps = self._occupants.pending_steps
        return at.base_ns + self._occupants.pending_ns + (JOIN_STEPS + steps) * at.prices.step_ns if steps else 0

    def _distance_ns(self, booking: Booking) -> int:
        """Between two starts: less than starts have where slots follow each other without a rest."""
        return booking.typical_ns * 3 // (4 * self._slots)

    def _apart(self, start_ns: int, apart_ns: int) -> int:
        """``start_ns``, or the next time after it that is so far from all other starts."""
        booked = self._agenda.booked
        place = bisect_left(booked, start_ns - apart_ns + 1, key=_START)
        while place < len(booked) and booked[place].start_ns < start_ns + apart_ns:
            start_ns = booked[place].start_ns + apart_ns
            place += 1
        return start_ns

    def _undisturbed(self, wanted: Booking, ready_ns: int, at: Moment) -> int:
        """Its start, or a later one if what runs could not bear it. It cannot bear to begin before ``ready_ns``."""
        occupants, prices = self._occupants, at.prices
        moved = max(self._bounds.start_beside(wanted), ready_ns)
        for slot in occupants.interrupts(prices):
            moved = max(moved, self._bounds.end(slot))
        if wanted.strict or self._agenda.strict:
            strict = [other for other in self._agenda.booked if other.strict or wanted.strict]
            moved = max([moved, *[other.last_ns(self._grace_ns) for other in strict]])
        return moved
