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

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

from specification.agenda import Agenda
from specification.booking import NEVER, Booking, Terms, Work
from specification.chains import is_next
from specification.occupants import Occupants
from specification.starts import Moment, Starts
from specification.turns import is_spare
from zerolayer.guard.deadline.booking import Room
from zerolayer.model.cost import Prices

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
        self._clock_ns, self._prices = clock_ns, prices
        self._free = list(range(slots - 1, -1, -1))  # a stack: the slot that was used last is the warmest in the caches
        self._occupants = Occupants(slots)
        self._agenda = Agenda(slots, self._occupants)
        self._bounds, self._booked = self._agenda.bounds, self._agenda.booked
        self._starts = Starts(
            slots, self._occupants, self._agenda, grace_ns=grace_ns, horizon_ns=horizon_ns, reserved=self.reserved
        )
        self._charged: dict[int, tuple[list[Booking], int]] = {}  # by slot that is claimed: to whom it adds what
        self._admitted = 0  # how many were
        self._unread: dict[int, int] = {}  # by slot whose prompt is not read: the how-manieth it is
        self._awaiting: list[tuple[Booking, int]] = []  # until all are read that were admitted before it was booked

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

    @property
    def booked_ns(self) -> int:
        """Slot time of all bookings, as it usually goes."""
        return self._agenda.typical_ns

    @property
    def open(self) -> int:
        """Slots that nobody holds and in which nothing is booked: whoever comes now may have one."""
        if not self._booked:
            return len(self._free)
        chains = self._agenda.chains
        return sum([not chains[slot] for slot in self._free])

    def next_open_ms(self, slots: int = 1) -> int:
        """Milliseconds until so many slots are open: 0 when they are, else at least 1, rounded up."""
        if self.open >= slots:
            return 0
        now, agenda, bounds = self._clock_ns(), self._agenda, self._bounds
        self._refresh(now)
        if slots > 1:
            end = sorted(bounds.ends())[slots - 1]
        elif agenda.unbooked:
            end = bounds.end_of_step(min(agenda.opens))
        else:
            end = min(agenda.tails)
        return max(1, -(-(end - now) // 1_000_000))

    def last_soft(self) -> Booking | None:
        """The booking that is the first to give way to another one."""
        return next((booking for booking in reversed(self._booked) if booking.yields), None)

    def is_feasible(self) -> bool:
        """Whether every promise can be kept as things stand: the invariant."""
        self._refresh(self._clock_ns())
        return self._bounds.are_kept() and min([0, *[booking.spare_ns for booking in self._booked]]) >= 0

    def ends(self) -> list[tuple[int, int] | None]:
        """By slot the bound of its end and its deadline; None where it is free."""
        due = self._occupants.due
        return [None if slot in self._free else (self._bounds.end(slot), due[slot]) for slot in range(self.slots)]

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

    def fit(self, work: Work, terms: Terms, turn_ns: int = NEVER) -> int:
        """The slot that could be taken now, or -1 where that would break a promise, the request's own ones included.

        Or where somebody who starts before ``turn_ns`` would wait for it.
        """
        if not self._free:
            return -1
        now, prices = self._clock_ns(), self._prices()
        end = self._fitting(work, terms, now, prices)
        typical = now + work.typical_ns(prices, self.taken)
        return -1 if end < 0 else self._suitable(typical, end, terms, turn_ns)

    def claim(self, work: Work, terms: Terms) -> int:
        """``fit``, and take that slot."""
        slot = self.fit(work, terms)
        if slot >= 0:
            self._walk_in(slot, work, terms)
        return slot

    def _walk_in(self, slot: int, work: Work, terms: Terms) -> None:
        """Take a slot that fits somebody without a booking."""
        prices = self._prices()
        weight = work.weight_ns(prices)
        self._charged[slot] = (self._agenda.charge(self._bounds.read_ns(work), weight), weight)
        self._take(slot, work, terms, self._clock_ns(), prices)

    def in_the_way(self, work: Work, terms: Terms) -> list[Booking]:
        """Soft bookings without which ``claim`` would succeed; none where that does not depend on them."""
        if not self._free or not any(booking.yields for booking in self._booked):
            return []
        now, prices = self._clock_ns(), self._prices()
        self._refresh(now)
        end = self._bounds.end_of(work, terms)
        if end < 0 or not self._undisturbing(work, end, terms, prices):
            return []
        first = 0 if terms.urgent else self.reserved
        heavy = [
            booking
            for booking in self._agenda.before(self._bounds.read_ns(work))
            if booking.spare_ns < work.weight_ns(prices)
        ]
        before = [[b for b in self._agenda.chains[slot] if b.start_ns < end] for slot in self._free if slot >= first]
        soft = [chain for chain in before if all(booking.yields for booking in chain)]
        if not soft or not all(booking.yields for booking in heavy):
            return []
        chain = min(soft, key=lambda chain: chain[0].start_ns if chain else 0)  # the least likely to be redeemed
        return chain + [booking for booking in heavy if booking not in chain]

    def redeem(self, booking: Booking, *, waits: bool = False) -> int:
        """Start what was booked, or -1.

        Where it follows what was booked before it, or else, in its place, where somebody without a booking could. If it
        ``waits``, only where others could as well: nobody takes the slot that is kept for it.
        """
        own, slot = booking.slot, -1 if waits else self._following(booking)
        if slot >= 0:
            self._agenda.not_before[own] = self._occupants.steps + booking.steps
            self._agenda.remove(booking, begins=True)
            self._agenda.reading[slot] = booking
            self._agenda.follows[slot] = slot == own
            self._take(slot, booking.work, booking.terms, self._clock_ns(), self._prices())
            return slot
        if waits and self.fit(booking.work, booking.terms) < 0:
            return -1
        places = self._agenda.lift(booking)
        slot = self.fit(booking.work, booking.terms, booking.start_ns)
        if slot < 0:
            self._agenda.put_back(booking, places)
            return -1
        self._agenda.demands.remove(booking)
        self._walk_in(slot, booking.work, booking.terms)
        return slot

    def _following(self, booking: Booking) -> int:
        """The slot in which something booked can start as what follows in its own one, or -1."""
        now, own = self._clock_ns(), booking.slot
        shaped = self.confirmed and self._occupants.steps < self._agenda.not_before[own]
        unread = any(each.slot == own for each in self._agenda.reading.values())
        if shaped or unread or not is_next(booking, self._agenda.chains[own], now):
            return -1  # of the bookings of one slot others have one prompt before them at most
        if own in self._free:
            return own
        self._refresh(now)
        if self._bounds.end(own) > self._occupants.due[own]:
            return -1  # who runs there has been promised that none of its own slot disturbs it
        return self._suitable(now + booking.typical_ns, now + booking.need_ns, booking.terms, booking.start_ns)

    def confirm(self, slot: int, work: Work) -> bool:
        """The true length is known and the engine gets the request. False: that breaks a promise; release the slot."""
        claimed, bounds = self._occupants.confirm(slot, work), self._bounds
        self._moved(slot)
        self._refresh(self._clock_ns())
        if work.chunks <= claimed.chunks and work.tokens <= claimed.tokens:  # its own, if it waited for too long
            self._refund(slot, work.weight_ns(self._prices()))
            return bounds.end(slot) <= self._occupants.due[slot] or bounds.ends()[slot] <= self._occupants.due[slot]
        read, weight = bounds.read_ns(work), work.weight_ns(self._prices())
        self._refund(slot, 0)  # whom it was charged to may be others than who starts before it is read now
        if not bounds.are_kept() or any(booking.spare_ns < weight for booking in self._agenda.before(read)):
            return False
        self._charged[slot] = (self._agenda.charge(read, weight), weight)
        return True

    def shorten(self, slot: int, work: Work) -> None:
        """What was confirmed in a slot, and has not run yet, turns out to need no more than ``work``."""
        self._occupants.shorten(slot, work)
        self._moved(slot)
        self._bounds.passed()
        weight = work.weight_ns(self._prices())
        if weight < self._charged.get(slot, ([], 0))[1]:
            self._refund(slot, weight)

    def _refund(self, slot: int, weight_ns: int) -> None:
        """A prompt adds only so much, or nothing any more: the rest is given back to those who allowed for it."""
        charged, claimed_ns = self._charged.pop(slot, ([], 0))
        for booking in charged:
            self._agenda.demands.charge(booking, min(0, weight_ns - claimed_ns))
        if weight_ns:
            self._charged[slot] = (charged, weight_ns)

    def _read(self, slot: int) -> None:
        """The prompt there holds nobody up any more."""
        if slot in self._charged:
            self._refund(slot, 0)
        if slot in self._agenda.reading:
            self._agenda.demands.read(self._agenda.reading.pop(slot))
        self._unread.pop(slot, None)
        first = min(self._unread.values(), default=self._admitted + 1)
        while self._awaiting and self._awaiting[0][1] < first:
            booking, _ = self._awaiting.pop(0)
            self._agenda.demands.charge(booking, -booking.awaits_ns)
            booking.awaits_ns = 0

    def ending(self, slot: int) -> None:
        """Its client is gone, or its text is complete: the slot comes back at the next step border."""
        self._occupants.ending(slot)
        self._moved(slot)

    def release(self, slot: int) -> None:
        """Give a slot back. Idempotent: a slot that is free stays free."""
        if slot not in self._free:
            self._read(slot)
            self._occupants.release(slot)
            self._agenda.follows[slot] = False
            self._free.append(slot)
            self._moved(slot)

    def on_step(self, prefill_slot: int, ended_ns: int, steps: int = 1) -> None:
        """A step is done, or several at once; the last one carried a chunk of ``prefill_slot``, or -1."""
        if self._occupants.on_step(prefill_slot, ended_ns, steps):
            self._read(prefill_slot)
            self._moved(prefill_slot)
        self._bounds.passed()

    def set_left(self, slot: int, steps: int) -> None:
        """What runs there has so many steps left, in a calendar that is made for what runs already."""
        self._occupants.set_left(slot, steps)
        self._moved(slot)

    def skip(self, slot: int, tokens: int, chunk_tokens: int) -> None:
        """The first ``tokens`` of a slot's prompt were attached, not computed."""
        self._occupants.skip(slot, tokens, chunk_tokens)
        self._bounds.passed()

    # What may start later.

    def book(
        self,
        work: Work,
        terms: Terms,
        *,
        spaced: Callable[[int], int] | None = None,
        soft: bool = False,
        room: Room = Room.NONE,
        waited: bool = False,
    ) -> Booking | None:
        """Promise the earliest start that suits everybody, or None when it would be beyond horizon or patience.

        ``spaced`` moves a start to the next one that the client can be told. ``soft``: until somebody else needs the
        slot. ``room``: what it leaves to others.
        """
        booking = self._starts.book(work, terms, self._moment(), spaced=spaced, soft=soft, room=room, waited=waited)
        if booking is not None and booking.awaits_ns:
            self._awaiting.append((booking, self._admitted))
        return booking

    def tell(self, work: Work, terms: Terms, *, spaced: Callable[[int], int] | None = None) -> int | None:
        """When to come for whom nothing is held: all that is booked now has begun, and a slot is typically free."""
        return self._starts.tell(work, terms, self._moment(), spaced=spaced)

    def void(self, booking: Booking) -> None:
        """Forget a booking: nobody will come for it, or it is not needed any more."""
        self._agenda.remove(booking, begins=False)

    # Whether it fits.

    def _refresh(self, now: int) -> None:
        """Bounds of all ends."""
        self._bounds.refresh(self._base(now), self._prices())

    def _moment(self) -> Moment:
        now, prices = self._clock_ns(), self._prices()
        base = self._base(now)
        self._bounds.refresh(base, prices)
        return Moment(now, base, prices, busy=self.confirmed)

    def _base(self, now: int) -> int:
        """Where the count of steps begins: the last border, or now on an engine that rests."""
        return now if len(self._free) == self.slots else self._occupants.border_ns

    def _fitting(self, work: Work, terms: Terms, now: int, prices: Prices) -> int:
        """The bound of the end if it started now; -1 when that breaks a promise."""
        self._refresh(now)
        end = self._bounds.end_of(work, terms)
        if end < 0 or not self._undisturbing(work, end, terms, prices):
            return -1
        weight = work.weight_ns(prices)
        return (
            -1 if any(booking.spare_ns < weight for booking in self._agenda.before(self._bounds.read_ns(work))) else end
        )

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

    def _suitable(self, typical: int, end: int, terms: Terms, turn_ns: int) -> int:
        """A free slot that is done when what is booked in it must begin at the latest, and is not waited for; or -1.

        By nobody who starts before ``turn_ns``, that is. What is booked in slots for all counts on no reserved one.
        """
        agenda, first = self._agenda, 0 if terms.urgent else self.reserved
        in_time = [slot for slot in reversed(self._free) if slot >= first and agenda.behind[slot] >= end]
        starts = {slot: agenda.chains[slot][0].start_ns if agenda.chains[slot] else NEVER for slot in in_time}
        if starts and is_spare(self._bounds.typical_ends(self.reserved), typical, agenda.booked, turn_ns):
            return max(starts, key=starts.__getitem__)
        kept = [slot for slot, start in starts.items() if slot < self.reserved and start >= typical]
        return kept[-1] if kept else -1

    def _take(self, slot: int, work: Work, terms: Terms, now: int, prices: Prices) -> None:
        if len(self._free) == self.slots:
            self._occupants.border_ns = now
            self._agenda.not_before[:] = [0] * self.slots  # nobody is left whom quick bookings could disturb
        self._free.remove(slot)
        self._occupants.take(slot, work, terms, prices)
        if work.chunks:
            self._admitted += 1
            self._unread[slot] = self._admitted
        self._moved(slot)

    def _moved(self, slot: int) -> None:
        """What runs there is another, or has fewer steps left."""
        self._bounds.changed(slot)
        self._agenda.bind(slot)
