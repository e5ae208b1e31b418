"""The calendar of slots: what runs until when, what is booked from when, and whether one more fits.

Pure: the clock and the prices are passed in, there is one writer (the event loop), and nothing waits. All times are
monotonic nanoseconds.

How a promise is kept. Slots run in lockstep, and a step carries at most one chunk of one prompt, in the order of
admission. So what is left of a running request is known in *steps*, and nobody can add to them; what others can do is
make steps longer, by the chunks they bring. The bound of a request's end is therefore ``steps * step_ns`` plus all
chunks that are admitted or booked before that end, plus one reserve (``model/cost.py``). Its distance to what must not
be passed - its own deadline, or the start that is booked behind it in the same slot - is its *slack*, and whoever
brings chunks is admitted or booked only where every slack allows them.

Plans use what is typical, promises use bounds. A booking starts when its slot is typically free, and its client is held
until the slot is: for moments as a rule, and never beyond ``hold_ns``, which covers the distance to the bound and which
the client's own limits allow. It may also come late, by up to ``grace_ns``. Both are bounds of its start, so the bound
of its end is ``max(start + grace, free) + need``, where its slot is free at ``free`` at the latest; and what is booked
behind it must be able to wait for that.

``need`` holds what others may add meanwhile. Bookings of one slot follow each other at least by the steps that the
earlier one may take, even if that ends early; so while a request of ``n`` steps runs, another slot begins at most
``1 + n / m`` bookings of ``m`` steps, and while several follow each other without a gap, that 1 counts once. That much
is set aside for each slot with bookings. Whoever was not booked takes from what is left.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from zerolayer.guard.deadline.booking import JOIN_STEPS, NEVER, Booking, Terms, Work
from zerolayer.guard.deadline.chains import Demands, added, begun_within, charge, disturbed, is_next, latest, set_aside
from zerolayer.guard.deadline.occupants import Occupants
from zerolayer.model.cost import Prices

_ROUNDS = 24  # of looking for a start that suits everybody
_SOON_NS = 1_000_000
_LEAD_SHARE = 6  # starts lie that part of a service early: to be held for a moment costs less than a slot at rest
_START = attrgetter("start_ns")


class Calendar:
    """``slots`` slots, the first ``reserved`` of them for urgent requests."""

    def __init__(
        self,
        slots: int,
        clock_ns: Callable[[], int],
        prices: Callable[[], Prices],
        *,
        grace_ns: int = 250_000_000,
        horizon_ns: int = 60_000_000_000,
        reserved: int = 0,
    ) -> None:
        self.slots = slots
        self.reserved = min(reserved, slots)
        self.grace_ns = grace_ns
        self.horizon_ns = horizon_ns
        self.booked_ns = 0  # slot time that bookings take
        self._clock_ns = clock_ns
        self._prices = prices
        self._free = list(range(slots - 1, -1, -1))  # a stack: the slot that was used last is the warmest in the caches
        self._occupants = Occupants(slots)
        self._behind = [NEVER] * slots  # when a slot must be free for what is booked in it
        self._limits = [NEVER] * slots  # the deadline of what runs, or the booking behind it
        self._chains: list[list[Booking]] = [[] for _ in range(slots)]  # bookings by slot
        self._demands = Demands(slots)
        self._follows = [False] * slots  # what runs there was booked
        self._not_before = [0] * slots  # number of the step after which the slot's next booking may begin
        self._booked: list[Booking] = []  # all of them, by start
        self._strict_booked = 0  # how many of these allow no foreign chunk
        self._alone = [0] * slots  # bounds of ends without bookings
        self._ends = [0] * slots  # and with them
        self._slacks = [NEVER] * slots
        self._stale = True

    # What there is.

    @property
    def free(self) -> int:
        """Slots that nobody holds now."""
        return len(self._free)

    @property
    def taken(self) -> int:
        """Slots that hold a request, or are being released by the step thread."""
        return self.slots - len(self._free)

    @property
    def confirmed(self) -> bool:
        """Whether the engine has work."""
        return any(self._occupants.done)

    @property
    def bookings(self) -> Sequence[Booking]:
        """Starts that are promised and not redeemed, in their order."""
        return self._booked

    def next_free_ms(self, slots: int = 1) -> int:
        """Milliseconds until so many slots are free: 0 when they are, else at least 1, rounded up."""
        if len(self._free) >= slots:
            return 0
        now = self._clock_ns()
        self._refresh(now)
        return max(1, -(-(sorted(self._ends)[slots - 1] - now) // 1_000_000))

    def is_feasible(self) -> bool:
        """Whether every promise can be kept as things stand: the invariant."""
        self._refresh(self._clock_ns())
        return min(self._slacks) >= 0 and all(booking.spare_ns >= 0 for booking in self._booked)

    def late(self, now_ns: int) -> list[int]:
        """Slots whose request is not done at its deadline."""
        due = self._occupants.due
        return [] if min(due) >= now_ns else [slot for slot in range(self.slots) if due[slot] < now_ns]

    def overdue(self, now_ns: int) -> list[Booking]:
        """Bookings whose client has not come in time; the caller voids them."""
        return [booking for booking in self._booked if booking.start_ns + self.grace_ns < now_ns and not booking.held]

    # What may start now.

    def claim(self, work: Work, terms: Terms) -> int:
        """Take a slot now, or -1 where that would break a promise, this request's own ones included."""
        if not self._free:
            return -1
        now, prices = self._clock_ns(), self._prices()
        self._refresh(now)
        end = self._end_of(work, terms, now, prices)
        if end < 0 or not self._bearable(work, end, terms, prices):
            return -1
        typical = now + work.typical_ns(prices, self.taken)
        slot = self._suitable(typical, end, terms)
        if slot >= 0:
            self._charge(end, work.weight_ns(prices))
            self._take(slot, work, terms, now, prices)
        return slot

    def redeem(self, booking: Booking) -> int:
        """Start what was booked, in its own slot or in any other one that suits; -1 while none is free."""
        now, own = self._clock_ns(), booking.slot
        shaped = self.confirmed and self._occupants.steps < self._not_before[own]
        if shaped or not is_next(booking, self._chains[own], now):
            return -1
        ends = now + booking.typical_ns, now + booking.need_ns
        slot = own if own in self._free else self._suitable(*ends, booking.terms)
        if slot >= 0:
            self._not_before[own] = self._occupants.steps + booking.work.steps
            self.void(booking)
            self._follows[slot] = slot == own
            self._take(slot, booking.work, booking.terms, now, self._prices())
        return slot

    def confirm(self, slot: int, work: Work) -> bool:
        """The true length is known and the engine gets the request. False: that breaks a promise; release the slot."""
        claimed = self._occupants.confirm(slot, work)
        self._stale = True
        self._refresh(self._clock_ns())
        if work.chunks <= claimed.chunks and work.tokens <= claimed.tokens:  # its own, if it waited for too long
            return self._ends[slot] <= self._occupants.due[slot]
        prices, end = self._prices(), self._ends[slot]
        more = work.weight_ns(prices) - claimed.weight_ns(prices)
        if min(self._slacks) < 0 or any(booking.spare_ns < more for booking in self._before(end)):
            return False
        self._charge(end, more)
        return True

    def ending(self, slot: int) -> None:
        """Its client is gone, or its text is complete: the slot comes back at the next step border."""
        self._occupants.ending(slot)
        self._bind(slot)

    def release(self, slot: int) -> None:
        """Give a slot back. Idempotent: a slot that is free stays free."""
        if slot not in self._free:
            self._occupants.release(slot)
            self._follows[slot] = False
            self._free.append(slot)
            self._bind(slot)

    def on_step(self, prefill_slot: int, ended_ns: int) -> None:
        """A step is done; it carried a chunk of ``prefill_slot``, or -1."""
        self._occupants.on_step(prefill_slot, ended_ns)
        self._stale = True

    def skip(self, slot: int, tokens: int, chunk_tokens: int) -> None:
        """The first ``tokens`` of a slot's prompt were attached, not computed."""
        self._occupants.skip(slot, tokens, chunk_tokens)
        self._stale = True

    # What may start later.

    def book(
        self, work: Work, terms: Terms, *, spaced: Callable[[int], int] | None = None, hold: bool = True
    ) -> Booking | None:
        """Promise the earliest start that suits everybody, or None when it would be beyond horizon or patience.

        ``spaced`` moves a start to the next one that the client can be told. ``hold=False`` only computes it.
        """
        now, prices = self._clock_ns(), self._prices()
        self._refresh(now)
        weight, plain = work.weight_ns(prices), work.need_ns(prices)
        room = min(terms.end_ns - plain, terms.first_token_ns - work.first_ns(prices))
        if room < 0:
            return None
        typical = work.typical_ns(prices, self.slots - 1)
        booking = Booking(0, -1, work, terms, typical, plain, 0, 0, 0, weight, [])
        bound = self._earliest(booking, now, prices)
        if bound == NEVER:
            return None
        more = added(booking, self._booked, self.slots) if hold else None
        if (not set_aside(booking, room, self._demands) or more is None) and hold:
            return None
        longest = booking.hold_ns
        booking.start_ns = max(booking.start_ns, bound - longest)
        last = min(now + self.horizon_ns, terms.patience_ns - booking.need_ns - longest)
        booking.strict = terms.per_token_ns < prices.stall_ns
        for _ in range(_ROUNDS):
            moved = self._undisturbed(booking, prices)
            moved = moved if spaced is None else spaced(moved)
            if moved > last:
                return None
            if moved == booking.start_ns:
                booking.hold_ns = max(0, min(longest, bound - moved))
                if more is not None:
                    self._add(booking, more)
                return booking
            booking.start_ns = moved
        return None

    # Whether it fits.

    def _refresh(self, now: int) -> None:
        """Bounds of all ends, and how much later each could be."""
        if self._stale:
            self._stale = False
            self._alone = self._occupants.ends(self._base(now), self._prices())
            self._ends = self._disturbed(0, None)
            self._slacks = [limit - end for limit, end in zip(self._limits, self._ends, strict=True)]

    def _disturbed(self, more: int, wanted: Booking | None) -> list[int]:
        """Bounds of all ends, if ``more`` were added now, and ``wanted`` were booked too.

        Bookings count where they start before an end, or, where that comes to less, as often as their slots can begin
        one within the steps that are left.
        """
        alone = [end and end + more for end in self._alone] if more else self._alone
        booked = self._booked
        if wanted is not None:
            place = bisect_right(booked, wanted.start_ns, key=_START)
            booked = [*booked[:place], wanted, *booked[place:]]
        ends = disturbed(alone, booked)
        waits = [step - self._occupants.steps for step in self._not_before]
        for slot in [slot for slot, limit in enumerate(self._limits) if ends[slot] > limit]:
            added = begun_within(self._occupants.left(slot), slot, self._chains, waits, wanted)
            ends[slot] = min(ends[slot], alone[slot] + added)
        return ends

    def _base(self, now: int) -> int:
        """Where the count of steps begins: the last border, or now on an engine that rests."""
        return now if len(self._free) == self.slots else self._occupants.border_ns

    def _end_of(self, work: Work, terms: Terms, now: int, prices: Prices) -> int:
        """The bound of the end if it started now; -1 when that or its first token would be too late."""
        occupants = self._occupants
        base = self._base(now) + prices.reserve_ns + occupants.pending_ns + work.chunk_ns
        first = base + (JOIN_STEPS + occupants.pending_steps + work.chunks) * prices.step_ns
        end = first + max(0, work.tokens - 1) * prices.step_ns
        for booking in self._booked:
            if booking.start_ns >= end:
                break
            end += booking.weight_ns
            if booking.start_ns < first:
                first += booking.weight_ns
        return -1 if first > terms.from_ns + terms.first_token_ns or end > terms.due_ns else end

    def _bearable(self, work: Work, end: int, terms: Terms, prices: Prices) -> bool:
        """Whether its chunks break nobody's promise, and nobody's chunks break its own cadence."""
        occupants = self._occupants
        if occupants.interrupts(prices):
            return False
        strict = terms.per_token_ns < prices.stall_ns
        if strict and (occupants.pending_steps or (self._booked and self._booked[0].start_ns < end)):
            return False
        weight = work.weight_ns(prices)
        more = weight if occupants.unconfirmed else work.chunk_ns
        if min(self._slacks) < more:
            return False
        if self._booked and more:
            ends = self._disturbed(more, None)
            if any(end > limit for end, limit in zip(ends, self._limits, strict=True)):
                return False
        return all(booking.spare_ns >= weight for booking in self._before(end))

    def _suitable(self, typical: int, end: int, terms: Terms) -> int:
        """A free slot with nothing booked before that, as a rule and at the latest; or -1."""
        first = 0 if terms.urgent else self.reserved
        free = [slot for slot in reversed(self._free) if slot >= first]
        for slot in free:
            if not self._chains[slot]:
                return slot
        for slot in free:
            if self._chains[slot][0].start_ns >= typical and self._behind[slot] >= end:
                return slot
        return -1

    def _earliest(self, booking: Booking, now: int, prices: Prices) -> int:
        """Give a booking the slot that can take one more first, and a start.

        Returns when it must be possible to begin at the latest; ``NEVER`` when no slot is for it.
        """
        first = 0 if booking.terms.urgent else self.reserved
        if first >= self.slots:
            return NEVER
        base, rate = self._base(now), prices.rate
        origin = base - (base + prices.reserve_ns) / rate  # typical ends lie on a line through the bounds
        typical = [
            chain[-1].start_ns + chain[-1].typical_ns if chain else int(origin + end / rate) if end else 0
            for chain, end in zip(self._chains, self._ends, strict=True)
        ]
        slot = typical.index(min(typical[first:]), first)
        bound, wait = self._ends[slot], self._not_before[slot] - self._occupants.steps
        if wait > 0 and self.confirmed:
            shaped = base + prices.reserve_ns + wait * prices.step_ns + self._occupants.pending_ns
            bound = max(bound, shaped)
        start, lead = now + _SOON_NS, booking.typical_ns // _LEAD_SHARE
        if bound:
            start = max(start, int(origin + bound / rate) - lead)
            bound += (self.slots - 1) * booking.weight_ns
            if bound < now:  # late by t: the best guess is that it needs as long again
                start = bound = 2 * now - bound
        for place, ahead in enumerate(self._chains[slot]):
            start = max(start - lead, ahead.start_ns) + ahead.typical_ns
            follow = ahead.next_ns if place or self._follows[slot] else ahead.last_ns
            bound = follow(self.grace_ns, bound or 1)
        booking.slot, booking.start_ns = slot, start
        return bound

    def _undisturbed(self, wanted: Booking, prices: Prices) -> int:
        """Its start, or a later one if what runs could not bear it."""
        moved, occupants = wanted.start_ns, self._occupants
        if max(self._ends) > moved:
            for end, limit, before in zip(self._disturbed(0, wanted), self._limits, self._ends, strict=True):
                if end > limit and end > before > moved:
                    moved = before
        # Chunks that are admitted and may still wait at that time.
        waiting = occupants.pending_ns + occupants.pending_steps * prices.step_ns
        if waiting:
            moved = max(moved, self._base(self._clock_ns()) + waiting + prices.reserve_ns - wanted.spare_ns)
        moved = max([moved, *[self._ends[slot] for slot in occupants.interrupts(prices)]])
        if wanted.strict or self._strict_booked:
            strict = [other for other in self._booked if other.strict or wanted.strict]
            moved = max([moved, *[other.last_ns(self.grace_ns) for other in strict]])
        return moved

    def _before(self, end: int) -> Iterator[Booking]:
        """Bookings that start before ``end``."""
        for booking in self._booked:
            if booking.start_ns >= end:
                return
            yield booking

    # Bookkeeping.

    def _charge(self, end: int, weight: int) -> None:
        for booking in self._before(end):
            booking.spare_ns -= weight

    def _take(self, slot: int, work: Work, terms: Terms, now: int, prices: Prices) -> None:
        if len(self._free) == self.slots:
            self._occupants.border_ns = now
        self._free.remove(slot)
        self._occupants.take(slot, work, terms, prices)
        self._bind(slot)

    def _add(self, booking: Booking, more: list[int]) -> None:
        charge(booking, self._booked, more)
        insort(self._booked, booking, key=_START)
        self.booked_ns += booking.need_ns
        self._strict_booked += booking.strict
        self._chains[booking.slot].append(booking)
        self._demands.update(booking.slot, self._chains[booking.slot])
        self._bind(booking.slot)

    def void(self, booking: Booking) -> None:
        """Forget a booking: it was redeemed, or nobody will come for it."""
        self._booked.remove(booking)
        self.booked_ns -= booking.need_ns
        self._strict_booked -= booking.strict
        self._chains[booking.slot].remove(booking)
        self._demands.update(booking.slot, self._chains[booking.slot])
        self._bind(booking.slot)

    def _bind(self, slot: int) -> None:
        """What a slot's occupant must not pass has changed."""
        limit = latest(self._chains[slot], follows=self._follows[slot])
        self._behind[slot] = limit
        self._limits[slot] = NEVER if slot in self._free else min(limit, self._occupants.due[slot])
        self._stale = True
