"""One decision for one request: it starts now, it redeems its booking, or it is refused with what comes next.

Check and reservation are one step. No waiting list: whoever is not started is answered, with one exception, a booked
client that comes a moment early or finds its slot not quite free; it holds a promise and is held for moments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from specification.attendance import Attendance
from specification.booking import NEVER, Booking, Terms
from specification.calendar import Calendar
from specification.tickets import Tickets
from zerolayer.errors import BeyondHorizon, Infeasible, SlotsBusy
from zerolayer.guard.deadline.admission import Grant, NoSlot, Wish
from zerolayer.guard.deadline.booking import EARLY_NS, Room
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tail import is_worth_waiting
from zerolayer.guard.deadline.tickets import Asker
from zerolayer.model.cost import CostTable
from zerolayer.observe.promises import Promises
from zerolayer.wire.schema import Tier

_NS_PER_MS: Final = 1_000_000
_REST_NS: Final = 1_000_000_000
_BOOKED_SHARE: Final = 0.5  # of all slot time up to the horizon: bookings must not starve whoever just comes
_BOOKED_A_SLOT: Final = 3
_A_SENDER: Final = 0.75  # of all bookings at most, while others hold some too
_FLEX_SHARE: Final = 0.5  # of all bookings at most, and it leaves an eighth of the slots to others
_FLEX_LEAVES: Final = 8
_IN_A_ROW: Final = 16  # bookings, then one start is left for who just comes


class Admission:
    """All methods run on the loop; ``message`` is what people read when no slot can start a request."""

    def __init__(
        self,
        calendar: Calendar,
        cost: CostTable,
        clock_ns: Callable[[], int],
        message: str,
        promises: Promises | None = None,
    ) -> None:
        self.calendar = calendar
        self.attendance = Attendance()
        self.heard_ns: int | None = None  # whoever came before that has been asked for; None: whoever has come
        self.ends_soon = False  # those who run end so soon that prompts are better read after that
        self._decode_ns = 0  # of the last step that carried no chunk
        self.tickets = Tickets(calendar.grace_ns)
        self._promises = promises or Promises()
        self._cost = cost
        self._clock_ns = clock_ns
        self._message = message
        self._last_border = self._rested_ns = 0
        self._told_ns = 0  # for whom nothing is held, not before that
        self._in_a_row = 0  # bookings since somebody started without one, or could have
        self._unbooked = 0  # how many were refused without one since then, and have none yet
        self._crowded = False  # not all could be booked since nobody was
        self._most = _BOOKED_A_SLOT * calendar.slots

    def ask(self, wish: Wish, asker: Asker) -> Grant | Booking | NoSlot:
        """A grant, or the redeemed booking of a client that is to be held until ``resume`` gives the grant.

        Raises ``Infeasible`` 422.
        """
        now = self._clock_ns()
        self._sweep(now)
        urgent = wish.tier is Tier.PRIORITY
        booking = self._booked_for(asker, wish.key, now)
        terms = _terms(wish.limits, now, urgent=urgent)
        hurries = booking is not None and self._hurries(wish.limits, booking.terms, now)
        if (booking is None or hurries) and (why := self._never(wish)) is not None:
            raise why
        if booking is not None and booking.start_ns - EARLY_NS <= now:
            if self._suits(booking, terms, now):
                self._promises.came(now - booking.start_ns)
                return self._redeem(booking, terms, now)
            self.void(booking)  # it is decided anew
            booking = None
        elif booking is not None:
            self._promises.booking("early")
        elif self.tickets.comes_late(asker, wish.key):
            self._promises.booking("late")
        slot = self._claim(wish, terms)
        if slot >= 0:
            self.began_unbooked()
            if booking is not None and booking in self.calendar.bookings:  # else it gave way to its own client
                self.void(booking)
            return Grant(slot, terms.due_ns)
        return self._refusal(wish, asker, terms, now) if booking is None else self._busy(booking.start_ns, now, booking)

    def _booked_for(self, asker: Asker, key: Hashable, now: int) -> Booking | None:
        """What this request redeems, or comes too early for; None where it is a new one.

        Some clients retry by a loop of their own, around an SDK that says each time that it is the first attempt. They
        are told from others with the same words by what becomes of their bookings.
        """
        booking = self.tickets.match(asker, key, now, self._heard_ns(now))
        if asker.retry:
            self.attendance.asks_again(asker.credential, booked=booking is not None)
        if booking is not None or asker.retry is not False:
            return booking
        alike = self.tickets.due(asker.credential, key, now, self._heard_ns(now))
        if alike is None or self.attendance.by_hand(asker.credential):
            return alike
        alike.doubled = True
        return None

    def _due_before(self, before: Terms, now: int) -> int:
        return now + before.end_ns if before.patience_ns == NEVER else before.patience_ns - self.calendar.grace_ns

    def _hurries(self, limits: Limits, before: Terms, now: int) -> bool:
        """Whether a client that comes back allows less time than it did, beyond what is lost on the way."""
        return (
            limits.first_token_ns < before.first_token_ns
            or limits.per_token_ns < before.per_token_ns
            or now + limits.end_ns < self._due_before(before, now)
        )

    def _suits(self, booking: Booking, terms: Terms, now: int) -> bool:
        """Whether what was booked will do on these terms."""
        before, prices = booking.terms, self._cost.prices()
        if not booking.strict and terms.per_token_ns < min(before.per_token_ns, prices.stall_ns):
            return False
        early_ns, left_ns = max(0, booking.start_ns - EARLY_NS - now), max(0, booking.latest_ns - now)  # to be held for
        first_ns, due_ns = terms.first_token_ns, terms.due_ns
        return (first_ns - early_ns >= before.first_token_ns or left_ns + booking.first_ns <= first_ns) and (
            due_ns - early_ns >= self._due_before(before, now) or now + left_ns + booking.need_ns <= due_ns
        )

    def began_unbooked(self) -> None:
        """Somebody who just came has started."""
        self._in_a_row, self._unbooked = 0, 0

    def resume(self, booking: Booking) -> Grant | None:
        """The grant of a held client as soon as there is one."""
        now = self._clock_ns()
        prices = self._cost.prices()
        longer = booking.work.chunk_ns > prices.step_ns  # it would keep others up for longer than it waits for a step
        waits = self.ends_soon and longer and now + prices.stall_ns < booking.latest_ns
        if now < booking.start_ns:
            return None
        self._sweep(now)
        slot = self.calendar.redeem(booking, waits=waits)
        if slot < 0:
            return None
        self.tickets.remove(booking)
        self.attendance.came(booking.credential)
        self._promises.booking("kept")
        return Grant(slot, booking.terms.due_ns, booked=True)

    def broken(self) -> None:
        """A client came in time for its booking and was not served."""
        self._promises.booking("broken")

    def refuse_longer(self, wish: Wish, asker: Asker) -> NoSlot:
        """The refusal of a request whose true length does not fit after all; its slot is released already."""
        now = self._clock_ns()
        return self._refusal(wish, asker, _terms(wish.limits, now, urgent=False), now)

    def void(self, booking: Booking) -> None:
        """Its client has gone, or was served without it."""
        self.calendar.void(booking)
        self.tickets.remove(booking)

    def give_back(self, ticket: str, credential: Hashable) -> None:
        """Its client will not come; nothing where ``credential`` holds no such booking, or has come already."""
        booking = self.tickets.of_ticket(ticket, credential)
        if booking is not None:
            self.void(booking)

    def sweep(self, now_ns: int) -> None:
        """Void what nobody came for."""
        self._forget(now_ns)
        self._sweep(now_ns)

    def _sweep(self, now_ns: int) -> None:
        for booking in self.calendar.overdue(self._heard_ns(now_ns)):
            self.attendance.stayed_away(booking.credential, doubled=booking.doubled)
            self.calendar.void(booking)
            self.tickets.lapse(booking)
        for _ in range(self.tickets.forget(now_ns)):
            self._promises.booking("no_show")

    def _heard_ns(self, now_ns: int) -> int:
        return now_ns if self.heard_ns is None else min(now_ns, self.heard_ns)

    def on_step(
        self, started_ns: int, ended_ns: int, *, decode_rows: int, prefill_slot: int, prefill_tokens: int
    ) -> None:
        """A step is done. What lies between two steps of a busy engine is part of what a step costs."""
        elapsed = ended_ns - (self._last_border or started_ns)
        self._cost.observe(decode_rows=decode_rows, prefill_tokens=prefill_tokens, elapsed_ns=elapsed)
        self.calendar.on_step(prefill_slot, ended_ns)
        self._last_border = ended_ns
        if not prefill_tokens:
            self._decode_ns = elapsed

    def foresee(self, left: Sequence[int], held: int) -> None:
        """After a step: the tokens that each who decodes has before it, and how many are held."""
        self.ends_soon = is_worth_waiting(
            left,
            held,
            self.calendar.free,
            step_ns=self._decode_ns,
            lone_ns=self._cost.lone_ns,
            chunk_ns=self._cost.prices().chunk_ns[-1],
        )

    def rest(self) -> None:
        """The engine has no work left, or the next step does not follow on the last one."""
        self._last_border = 0
        self._rested_ns = self._clock_ns()

    def _forget(self, now_ns: int) -> None:
        """Nobody is refused for what the last steps were like while none runs that could show another picture."""
        if now_ns - self._rested_ns >= _REST_NS and not self.calendar.confirmed:
            self._rested_ns = now_ns
            self._cost.rest()

    def _claim(self, wish: Wish, terms: Terms) -> int:
        """A slot at once, or -1. Nothing is held against somebody who is here for somebody who may not come."""
        calendar, work = self.calendar, wish.most
        if not calendar.free:
            return -1
        if wish.tier is Tier.FLEX and calendar.free <= calendar.slots // _FLEX_LEAVES:
            return -1
        slot = calendar.claim(work, terms)
        if slot < 0 and wish.least.chunks < work.chunks:
            work = wish.least
            slot = calendar.claim(work, terms)
        if slot < 0 and (yielding := calendar.in_the_way(work, terms)):
            for booking in yielding:
                self.void(booking)
            slot = calendar.claim(work, terms)
        return slot

    def _redeem(self, booking: Booking, terms: Terms, now: int) -> Grant | Booking:
        booking.terms = terms
        booking.held = True
        return self.resume(booking) or booking

    def _refusal(self, wish: Wish, asker: Asker, terms: Terms, now: int) -> NoSlot:
        """Book, or else tell a time, if there is one."""
        calendar, reads = self.calendar, partial(self.tickets.spaced, asker, now)
        soft = not self.attendance.trusts(asker.credential)
        self._crowded = self._crowded and bool(calendar.bookings)
        room = Room.LENT if self._crowded else Room.NONE
        if self._unbooked and self._in_a_row >= _IN_A_ROW:
            room = Room.GAP
        booking = None
        if self._may_book(wish, asker, soft=soft):
            waited = asker.retry is True
            booking = calendar.book(wish.promised, terms, spaced=reads, soft=soft, room=room, waited=waited)
        if booking is not None:
            if room is Room.GAP:
                self.began_unbooked()
            else:
                self._in_a_row += 1
                self._unbooked -= asker.retry is True and self._unbooked > 0  # it is one of them
            self.tickets.add(booking, asker, wish.key)
            return self._busy(booking.start_ns, now, booking)
        self._unbooked += 1
        self._crowded = True
        told_ns = None
        behind = 0 if asker.retry else self._told_ns  # who has waited already is not sent to the end
        if behind <= now + calendar.horizon_ns:  # else others were told all that time can hold
            told_ns = calendar.tell(wish.promised, terms, spaced=lambda start: reads(max(start, behind)))
        if told_ns is None:
            return BeyondHorizon("no slot can start this request in time; give it more time, or send it later")
        if not asker.last and not asker.retry:  # the next one is told a later time, as slots come free one by one
            typical_ns = wish.promised.typical_ns(self._cost.prices(), calendar.slots - 1)
            self._told_ns = told_ns + typical_ns // calendar.slots
        return self._busy(told_ns, now)

    def _may_book(self, wish: Wish, asker: Asker, *, soft: bool) -> bool:
        """Whether a slot may be held for this sender, beside all that is booked."""
        calendar, tickets = self.calendar, self.tickets
        most = (_FLEX_SHARE if wish.tier is Tier.FLEX else 1.0) * self._most
        if len(calendar.bookings) >= most and not soft and (last := calendar.last_soft()) is not None:
            self.void(last)
        if asker.last or len(calendar.bookings) >= most:
            return False
        mine = tickets.of(asker.credential)
        return calendar.booked_ns < _BOOKED_SHARE * calendar.slots * calendar.horizon_ns and (
            mine < max(1.0, _A_SENDER * most) or mine == len(tickets)
        )

    def _busy(self, start_ns: int, now: int, booking: Booking | None = None) -> SlotsBusy:
        wait_ms = max(1, -(-(start_ns - now) // _NS_PER_MS))
        ticket = None if booking is None or booking.soft else booking.ticket
        return SlotsBusy(self._message, retry_after_ms=wait_ms, ticket=ticket)

    def _never(self, wish: Wish) -> Infeasible | None:
        """The refusal of what could not be in time on an engine that does nothing else, at typical speed."""
        prices, work, limits = self._cost.prices(), wish.least, wish.limits
        rate = prices.rate
        first = (work.chunks * prices.step_ns + work.chunk_ns) / rate
        end = first + max(0, work.tokens - 1) * prices.step_ns / rate
        for needed, limit, what in (
            (first, limits.first_token_ns, "the first token takes at least"),
            (end, limits.end_ns, "the answer takes at least"),
            (prices.step_ns / rate, limits.per_token_ns, "each token takes at least"),
        ):
            if needed > limit:
                return Infeasible(
                    f"{what} {needed / _NS_PER_MS:.0f} ms on an idle server, and the request allows "
                    f"{limit / _NS_PER_MS:.0f} ms; give it more time, shorten the prompt or lower max_tokens"
                )
        return None


def _terms(limits: Limits, now: int, *, urgent: bool) -> Terms:
    patience = NEVER if limits.patience_ns is None else now + limits.patience_ns
    return Terms(now, limits.first_token_ns, limits.per_token_ns, limits.end_ns, patience, urgent)
