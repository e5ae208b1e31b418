"""The calendar of slots: what runs until when, what is booked from when, and whether one more fits.

There is one writer (the event loop), and nothing waits. All times are monotonic nanoseconds.

How a promise is kept. Slots run in lockstep, and a step carries at most one chunk of one prompt, in the order of
admission. So what is left of a running request is known in *steps*, and nobody can add to them; what others can do is
make steps longer, by the chunks they bring. The bound of a request's end is therefore ``steps * step_ns`` plus all
chunks that are admitted or booked before that end, plus one reserve (``model/cost.py``). Its distance to what must not
be passed - its own deadline, or the start that is booked behind it in the same slot - is its *slack*, and whoever
brings chunks is admitted or booked only where every slack allows them.

The arithmetic is compiled, as every refusal pays for it (``native/deadline_*.hpp``); here it meets the clock and the
prices. ``tests/guard/deadline/specification/`` has the same in Python, and the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zerolayer.guard.deadline import _native
from zerolayer.guard.deadline.booking import Booking, Room, Terms, Work
from zerolayer.model.cost import Prices


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
        self.grace_ns = grace_ns
        self.horizon_ns = horizon_ns
        self._core = _native.Calendar(slots, grace_ns, horizon_ns, reserved)
        self._clock_ns, self._prices = clock_ns, prices
        self._known: Prices | None = None

    def core(self) -> _native.Calendar:
        """The compiled calendar, at the prices of now."""
        prices = self._prices()
        if prices is not self._known:
            self._known = prices
            chunk_ns, spent_ns = prices.chunk_ns[-1], prices.spent_ns
            self._core.price(prices.step_ns, chunk_ns, prices.reserve_ns, prices.stall_ns, prices.rate, spent_ns)
        return self._core

    # What there is.

    @property
    def free(self) -> int:
        """Slots that nobody holds now."""
        return self._core.free

    @property
    def taken(self) -> int:
        """Slots that hold a request, or are being released by the step thread."""
        return self.slots - self._core.free

    @property
    def confirmed(self) -> bool:
        """Whether the engine has work."""
        return self._core.confirmed

    @property
    def bookings(self) -> Sequence[Booking]:
        """Starts that are promised and not redeemed, in their order."""
        return self._core.bookings

    @property
    def booked_ns(self) -> int:
        """Slot time of all bookings, as it usually goes."""
        return self._core.booked_ns

    @property
    def open(self) -> int:
        """Slots that nobody holds and in which nothing is booked: whoever comes now may have one."""
        return self._core.open

    def next_open_ms(self, slots: int = 1) -> int:
        """Milliseconds until so many slots are open: 0 when they are, else at least 1, rounded up."""
        return self.core().next_open_ms(slots, self._clock_ns())

    def standing(self) -> tuple[int, int]:
        """``open`` and ``next_open_ms``, as every reply tells them."""
        return self.core().standing(self._clock_ns())

    def is_feasible(self) -> bool:
        """Whether every promise can be kept as things stand: the invariant."""
        return self.core().is_feasible(self._clock_ns())

    def ends(self) -> list[tuple[int, int] | None]:
        """By slot the bound of its end, as of the last decision, and its deadline; None where it is free."""
        core = self._core
        return [(end, core.due_ns(slot)) if end else None for slot, end in enumerate(core.ends())]

    def due_ns(self, slot: int) -> int:
        """The deadline of what runs there."""
        return self._core.due_ns(slot)

    def late(self, now_ns: int) -> list[int]:
        """Slots whose request is not done at its deadline."""
        return self._core.late(now_ns)

    # What may start now.

    def fit(self, work: Work, terms: Terms) -> int:
        """The slot that could be taken now, or -1 where that would break a promise, the request's own ones included."""
        return self.core().fit(work, terms, self._clock_ns())

    def claim(self, work: Work, terms: Terms) -> int:
        """``fit``, and take that slot."""
        return self.core().claim(work, terms, self._clock_ns())

    def claim_all(self, work: Work, terms: Terms, count: int) -> list[int]:
        """``count`` slots for ``work`` each, or none where that would break a promise, their own included."""
        return self.core().claim_all(work, terms, count, self._clock_ns())

    def redeem(self, booking: Booking) -> int:
        """Start what was booked, in its own slot or in any other one that suits; -1 while none is free."""
        return self.core().redeem(booking, self._clock_ns())

    def confirm(self, slot: int, work: Work) -> bool:
        """The true length is known and the engine gets the request. False: that breaks a promise; release the slot."""
        return self.core().confirm(slot, work, self._clock_ns())

    def shorten(self, slot: int, work: Work) -> None:
        """What was confirmed in a slot, and has not run yet, turns out to need no more than ``work``."""
        self.core().shorten(slot, work)

    def ending(self, slot: int) -> None:
        """Its client is gone, or its text is complete: the slot comes back at the next step border."""
        self._core.ending(slot)

    def release(self, slot: int) -> None:
        """Give a slot back. Idempotent: a slot that is free stays free."""
        self._core.release(slot)

    def on_step(self, prefill_slot: int, ended_ns: int, steps: int = 1) -> None:
        """A step is done, or several at once; the last one carried a chunk of ``prefill_slot``, or -1."""
        self._core.on_step(prefill_slot, ended_ns, steps)

    def skip(self, slot: int, tokens: int, chunk_tokens: int) -> None:
        """The first ``tokens`` of a slot's prompt were attached, not computed."""
        self._core.skip(slot, tokens, chunk_tokens)

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
        slot. ``room``: what it leaves to others. ``waited``: it was refused without a booking before, so that the room
        that all bookings leave for such a prompt is its own.
        """
        return self.core().book(work, terms, spaced, soft, room, waited, self._clock_ns())

    def tell(self, work: Work, terms: Terms, *, spaced: Callable[[int], int] | None = None) -> int | None:
        """When to come for whom nothing is held: all that is booked now has begun, and a slot is typically free."""
        told_ns = self.core().tell(work, terms, spaced, self._clock_ns())
        return None if told_ns < 0 else told_ns

    def void(self, booking: Booking) -> None:
        """Forget a booking: nobody will come for it, or it is not needed any more."""
        self._core.void(booking)
