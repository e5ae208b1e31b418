"""The calendar of slots: what runs until when, what is booked from when, and whether one more fits.

Pure: the clock and the prices are passed in, there is one writer (the event loop), and nothing waits. All times are
monotonic nanoseconds.

How a promise is kept. Slots run in lockstep, and a step carries at most one chunk of one prompt, in the order of
admission. So what is left of a running request is known in *steps*, and nobody can add to them; what others can do is
make steps longer, by the chunks they bring. The bound of a request's end is therefore ``steps * step_ns`` plus all
chunks that are admitted or booked before that end, plus one reserve (``model/cost.py``). Its distance to what must not
be passed - its own deadline, or the start that is booked behind it in the same slot - is its *slack*, and whoever
brings chunks is admitted or booked only where every slack allows them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from operator import attrgetter

from zerolayer.guard.deadline.booking import NEVER, Booking, Terms, Work
from zerolayer.guard.deadline.bounds import Bounds
from zerolayer.guard.deadline.chains import is_next, latest
from zerolayer.guard.deadline.demands import Demands
from zerolayer.guard.deadline.occupants import Occupants
from zerolayer.guard.deadline.picture import Picture
from zerolayer.model.cost import Prices

_ROUNDS = 24  # of looking for a start that suits everybody
_SOON_NS = 1_000_000
_LEAD_SHARE = 12  # starts lie that part of a service early: to be held for a moment costs less than a slot at rest
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
        self.booked_ns, self._strict_booked = 0, 0  # slot time of bookings; how many of them allow no foreign chunk
        self._clock_ns, self._prices = clock_ns, prices
        self._free = list(range(slots - 1, -1, -1))  # a stack: the slot that was used last is the warmest in the caches
        self._occupants = Occupants(slots)
        self._behind = [NEVER] * slots  # when a slot must be free for what is booked in it
        self._chains: list[list[Booking]] = [[] for _ in range(slots)]  # bookings by slot
        self._demands = Demands(self._chains)
        self._follows = [False] * slots  # what runs there was booked
        self._not_before = [0] * slots  # number of the step after which the slot's next booking may begin
        self._booked: list[Booking] = []  # all of them, by start
        self._bounds = Bounds(self._occupants, self._booked, self._chains, self._not_before)
        self.picture = Picture(self._bounds, self._occupants, self._booked, self._free)
        self._opens = [0] * slots  # for a next booking: the last step of what runs, where nothing is booked
        self._tails = [NEVER] * slots  # and when the last booking of a slot typically ends

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
        bounds = self._bounds
        end = bounds.end(bounds.alone.index(min(bounds.alone))) if slots == 1 else sorted(bounds.ends())[slots - 1]
        return max(1, -(-(end - now) // 1_000_000))

    def last_soft(self) -> Booking | None:
        """The booking that is the first to give way to another one."""
        return next((booking for booking in reversed(self._booked) if booking.yields), None)

    def is_feasible(self) -> bool:
        """Whether every promise can be kept as things stand: the invariant."""
        self._refresh(self._clock_ns())
        return self._bounds.are_kept() and min([0, *[booking.spare_ns for booking in self._booked]]) >= 0

    def due_ns(self, slot: int) -> int:
        """The deadline of what runs there."""
        return self._occupants.due[slot]

    def late(self, now_ns: int) -> list[int]:
        """Slots whose request is not done at its deadline."""
        due = self._occupants.due
        return [] if min(due) >= now_ns else [slot for slot in range(self.slots) if due[slot] < now_ns]

    def overdue(self, now_ns: int) -> list[Booking]:
        """Bookings whose client has not come in time; the caller voids them."""
        until = bisect_left(self._booked, now_ns - self.grace_ns, key=_START)
        return [booking for booking in self._booked[:until] if not booking.held]

    # What may start now.

    def fit(self, work: Work, terms: Terms) -> int:
        """The slot that could be taken now, or -1 where that would break a promise, the request's own ones included."""
        if not self._free:
            return -1
        now, prices = self._clock_ns(), self._prices()
        end = self._fitting(work, terms, now, prices)
        return -1 if end < 0 else self._suitable(now + work.typical_ns(prices, self.taken), end, terms)

    def claim(self, work: Work, terms: Terms) -> int:
        """``fit``, and take that slot."""
        slot = self.fit(work, terms)
        if slot >= 0:
            now, prices = self._clock_ns(), self._prices()
            self._charge(self._bounds.end_of(work, terms, self._base(now), prices), work.weight_ns(prices))
            self._take(slot, work, terms, now, prices)
        return slot

    def in_the_way(self, work: Work, terms: Terms) -> list[Booking]:
        """Soft bookings without which ``claim`` would succeed; none where that does not depend on them."""
        if not self._free or not any(booking.yields for booking in self._booked):
            return []
        now, prices = self._clock_ns(), self._prices()
        self._refresh(now)
        end = self._bounds.end_of(work, terms, self._base(now), prices)
        if end < 0 or not self._undisturbing(work, end, terms, prices):
            return []
        first = 0 if terms.urgent else self.reserved
        heavy = [booking for booking in self._before(end) if booking.spare_ns < work.weight_ns(prices)]
        before = [[b for b in self._chains[slot] if b.start_ns < end] for slot in self._free if slot >= first]
        soft = [chain for chain in before if all(booking.yields for booking in chain)]
        if not soft or not all(booking.yields for booking in heavy):
            return []
        chain = min(soft, key=lambda chain: chain[0].start_ns if chain else 0)  # the least likely to be redeemed
        return chain + [booking for booking in heavy if booking not in chain]

    def redeem(self, booking: Booking) -> int:
        """Start what was booked, in its own slot or in any other one that suits; -1 while none is free."""
        now, own = self._clock_ns(), booking.slot
        shaped = self.confirmed and self._occupants.steps < self._not_before[own]
        if shaped or not is_next(booking, self._chains[own], now):
            return -1
        slot = own
        if own not in self._free:
            slot = self._suitable(now + booking.typical_ns, now + booking.need_ns, booking.terms)
        if slot >= 0:
            self._not_before[own] = self._occupants.steps + booking.steps
            self._remove(booking, begins=True)
            self._follows[slot] = slot == own
            self._take(slot, booking.work, booking.terms, now, self._prices())
        return slot

    def confirm(self, slot: int, work: Work) -> bool:
        """The true length is known and the engine gets the request. False: that breaks a promise; release the slot."""
        claimed, bounds = self._occupants.confirm(slot, work), self._bounds
        bounds.changed()
        self._bind(slot)
        self._refresh(self._clock_ns())
        if work.chunks <= claimed.chunks and work.tokens <= claimed.tokens:  # its own, if it waited for too long
            return bounds.end(slot) <= self._occupants.due[slot] or bounds.ends()[slot] <= self._occupants.due[slot]
        prices, end = self._prices(), bounds.end(slot)
        more = work.weight_ns(prices) - claimed.weight_ns(prices)
        if not bounds.are_kept() or any(booking.spare_ns < more for booking in self._before(end)):
            return False
        self._charge(end, more)
        return True

    def ending(self, slot: int) -> None:
        """Its client is gone, or its text is complete: the slot comes back at the next step border."""
        self._occupants.ending(slot)
        self._bind(slot)
        self._bounds.changed()

    def release(self, slot: int) -> None:
        """Give a slot back. Idempotent: a slot that is free stays free."""
        if slot not in self._free:
            self._occupants.release(slot)
            self._follows[slot] = False
            self._free.append(slot)
            self._bind(slot)
            self._bounds.changed()

    def on_step(self, prefill_slot: int, ended_ns: int) -> None:
        """A step is done; it carried a chunk of ``prefill_slot``, or -1."""
        self._occupants.on_step(prefill_slot, ended_ns)
        self._bounds.changed()

    def skip(self, slot: int, tokens: int, chunk_tokens: int) -> None:
        """The first ``tokens`` of a slot's prompt were attached, not computed."""
        self._occupants.skip(slot, tokens, chunk_tokens)
        self._bounds.changed()

    # What may start later.

    def book(
        self,
        work: Work,
        terms: Terms,
        *,
        spaced: Callable[[int], int] | None = None,
        hold: bool = True,
        soft: bool = False,
    ) -> Booking | None:
        """Promise the earliest start that suits everybody, or None when it would be beyond horizon or patience.

        ``spaced`` moves a start to the next one that the client can be told. ``soft``: until somebody else needs the
        slot. ``hold=False`` holds nothing: the start is one that can be kept against all that is known by now.
        """
        now, prices = self._clock_ns(), self._prices()
        self._refresh(now)
        weight, plain, typical = work.weight_ns(prices), work.need_ns(prices), work.typical_ns(prices, self.slots - 1)
        booking = Booking(0, -1, work, terms, work.steps, typical, plain, weight, soft=soft)
        bound = self._earliest(booking, now, prices)
        if bound == NEVER:
            return None
        demands = self._demands
        spares = demands.set_aside(booking, terms.end_ns - plain, terms.first_token_ns - work.first_ns(prices))
        if spares is None or (hold and not demands.bear(booking)):
            return None
        longest, first_spare = booking.hold_ns, spares[-1][1]
        if not hold:
            longest = 0
            bound = max([bound, *[other.last_ns(self.grace_ns) for other in self._booked]])
        booking.start_ns = max(booking.start_ns, bound - longest)
        booking.strict = terms.per_token_ns < prices.stall_ns
        last = min(now + self.horizon_ns, terms.patience_ns - booking.need_ns - longest)
        for _ in range(_ROUNDS):
            moved = self._undisturbed(booking, first_spare, prices)
            moved = moved if spaced is None else spaced(moved)
            if moved > last:
                return None
            if moved == booking.start_ns:
                booking.hold_ns = max(0, min(longest, bound - moved))
                if hold:
                    self._add(booking)
                    demands.add(booking, spares)
                return booking
            booking.start_ns = moved
        return None

    # Whether it fits.

    def _refresh(self, now: int) -> None:
        """Bounds of all ends."""
        self._bounds.refresh(self._base(now), self._prices())

    def _base(self, now: int) -> int:
        """Where the count of steps begins: the last border, or now on an engine that rests."""
        return now if len(self._free) == self.slots else self._occupants.border_ns

    def _fitting(self, work: Work, terms: Terms, now: int, prices: Prices) -> int:
        """The bound of the end if it started now; -1 when that breaks a promise."""
        self._refresh(now)
        end = self._bounds.end_of(work, terms, self._base(now), prices)
        if end < 0 or not self._undisturbing(work, end, terms, prices):
            return -1
        weight = work.weight_ns(prices)
        return -1 if any(booking.spare_ns < weight for booking in self._before(end)) else end

    def _undisturbing(self, work: Work, end: int, terms: Terms, prices: Prices) -> bool:
        """Whether its chunks break no promise of what runs, and nobody's chunks break its own cadence."""
        occupants = self._occupants
        if occupants.interrupts(prices):
            return False
        if terms.per_token_ns < prices.stall_ns and (
            occupants.pending_steps or (self._booked and self._booked[0].start_ns < end)
        ):
            return False
        return self._bounds.bear(work.weight_ns(prices) if occupants.unconfirmed else work.chunk_ns)

    def _suitable(self, typical: int, end: int, terms: Terms) -> int:
        """A free slot with nothing booked before that, as a rule and at the latest; or -1."""
        first = 0 if terms.urgent else self.reserved
        for slot in reversed(self._free):
            if not self._chains[slot] and slot >= first:
                return slot
        for slot in reversed(self._free):
            if slot >= first and self._chains[slot][0].start_ns >= typical and self._behind[slot] >= end:
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
        opens, tails = self._opens[first:] if first else self._opens, self._tails[first:] if first else self._tails
        slot, bound, opening, tail = -1, NEVER, min(opens), min(tails)
        if opening != NEVER:
            slot = opens.index(opening) + first
            bound = self._bounds.end(slot)
        if bound and origin + bound / rate > tail:
            slot = tails.index(tail) + first
            bound = self._bounds.end(slot)
        wait = self._not_before[slot] - self._occupants.steps
        if wait > 0 and self.confirmed:
            shaped = base + prices.reserve_ns + wait * prices.step_ns + self._occupants.pending_ns
            bound = max(bound, shaped)
        start, lead = now + _SOON_NS, booking.typical_ns // _LEAD_SHARE
        if bound:
            start = max(start, int(origin + bound / rate) - lead)
            bound += sum([not chain for chain in self._chains]) * booking.weight_ns
            if bound < now:  # late by t: the best guess is that it needs as long again
                start = bound = 2 * now - bound
        for place, ahead in enumerate(self._chains[slot]):
            start = max(start - lead, ahead.start_ns) + ahead.typical_ns
            follow = ahead.next_ns if place or self._follows[slot] else ahead.last_ns
            bound = follow(self.grace_ns, bound or 1)
        booking.slot, booking.start_ns = slot, start
        return bound

    def _undisturbed(self, wanted: Booking, spare_ns: int, prices: Prices) -> int:
        """Its start, or a later one if what runs could not bear it."""
        moved, occupants = self._bounds.start_beside(wanted), self._occupants
        # Chunks that are admitted and may still wait at that time.
        waiting = occupants.pending_ns + occupants.pending_steps * prices.step_ns
        if waiting:
            moved = max(moved, self._base(self._clock_ns()) + waiting + prices.reserve_ns - spare_ns)
        for slot in occupants.interrupts(prices):
            moved = max(moved, self._bounds.end(slot))
        if wanted.strict or self._strict_booked:
            strict = [other for other in self._booked if other.strict or wanted.strict]
            moved = max([moved, *[other.last_ns(self.grace_ns) for other in strict]])
        return moved

    def _before(self, end: int) -> list[Booking]:
        """Bookings that start before ``end``."""
        return self._booked[: bisect_left(self._booked, end, key=_START)]

    # Bookkeeping.

    def _charge(self, end: int, weight: int) -> None:
        for booking in self._before(end):
            self._demands.charge(booking, weight)

    def _take(self, slot: int, work: Work, terms: Terms, now: int, prices: Prices) -> None:
        if len(self._free) == self.slots:
            self._occupants.border_ns = now
            self._not_before[:] = [0] * self.slots  # nobody is left whom bookings in quick succession could disturb
        self._free.remove(slot)
        self._occupants.take(slot, work, terms, prices)
        self._bind(slot)
        self._bounds.changed()

    def void(self, booking: Booking) -> None:
        """Forget a booking: nobody will come for it, or it is not needed any more."""
        self._remove(booking, begins=False)

    def _add(self, booking: Booking) -> None:
        insort(self._booked, booking, key=_START)
        self._chains[booking.slot].append(booking)
        self._count(booking, 1)

    def _remove(self, booking: Booking, *, begins: bool) -> None:
        self._booked.remove(booking)
        self._chains[booking.slot].remove(booking)
        self._demands.remove(booking, begins=begins)
        self._count(booking, -1)

    def _count(self, booking: Booking, sign: int) -> None:
        slot, chain = booking.slot, self._chains[booking.slot]
        self.booked_ns += sign * booking.typical_ns
        self._strict_booked += sign * booking.strict
        self._bounds.booking_changed(sign * booking.weight_ns)
        self._tails[slot] = chain[-1].start_ns + chain[-1].typical_ns if chain else NEVER
        self._bind(slot)

    def _bind(self, slot: int) -> None:
        """What a slot's occupant must not pass has changed."""
        limit = latest(self._chains[slot], follows=self._follows[slot])
        self._behind[slot] = limit
        self._bounds.bind(slot, min(limit, self._occupants.due[slot]))
        self._opens[slot] = NEVER if self._chains[slot] else self._occupants.last_step(slot)
