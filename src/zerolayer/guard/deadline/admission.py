"""One decision for one request: it starts now, it redeems its booking, or it is refused with what comes next.

Check and reservation are one step. No waiting list: whoever is not started is answered, with one exception, a booked
client that comes a moment early or finds its slot not quite free; it holds a promise and is held for moments. The
decisions are ``native/deadline_admission.hpp``'s, together with the calendar; here they are told and counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from zerolayer.contract import Contract
from zerolayer.errors import BeyondHorizon, Infeasible, SlotsBusy
from zerolayer.guard.deadline import _native
from zerolayer.guard.deadline.booking import JOIN_STEPS, NEVER, Booking, Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.draft_slot import DraftSlot
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tail import is_worth_waiting
from zerolayer.guard.deadline.tickets import Asker, Name
from zerolayer.model.cost import CostTable, Prices
from zerolayer.observe.promises import Promises
from zerolayer.wire.schema import Tier

_NS_PER_MS: Final = 1_000_000
_REST_NS: Final = 1_000_000_000
_FLEX_LEAVES: Final = 8
_GRANTED, _HELD, _BUSY, _INFEASIBLE = 0, 1, 2, 4  # Kind in native/deadline_admission.hpp; 3 is beyond the horizon
_NEEDS: Final = ("the first token takes at least", "the answer takes at least", "each token takes at least")
_ROOM: Final = 1.5  # of what is promised over what was seen, where the contract asks for more than the machine has


NoSlot = SlotsBusy | BeyondHorizon
"""The refusal of whom there is no slot for. Returned, not raised: under load it is the usual answer."""


class Wish(msgspec.Struct, frozen=True):
    """What is asked: ``least`` and ``most`` are bounds of what the work is found to be when the text is tokenised.

    ``promised`` is the bound by experience, on which it is booked.
    """

    most: Work
    least: Work
    promised: Work
    limits: Limits
    tier: Tier
    key: Name  # route and body


class Grant(msgspec.Struct, frozen=True):
    """A slot from now on. ``due_ns`` is the request's deadline."""

    slot: int
    due_ns: int
    booked: bool = False


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
        self.drafts = DraftSlot(calendar.slots, clock_ns)
        self._core = _native.Admission(calendar.core(), os.urandom)
        self.attendance = self._core.attendance
        self.tickets = self._core.tickets
        self._promises = promises or Promises()
        self._cost = cost
        self._clock_ns = clock_ns
        self._message = message
        self._last_border = self._rested_ns = 0
        self._decode_ns = 0  # of the last step that carried no chunk
        self._promised_at: Prices | None = None  # the last answer of ``promised``, and to what
        self._promised_of = self._promised = Limits(0, 0, 0)

    @property
    def heard_ns(self) -> int | None:
        """Whoever came before that has been asked for; None: whoever has come."""
        return self._core.heard_ns

    @heard_ns.setter
    def heard_ns(self, heard_ns: int | None) -> None:
        self._core.heard_ns = heard_ns

    @property
    def told_ns(self) -> int:
        """For whom nothing is held, not before that."""
        return self._core.told_ns

    @told_ns.setter
    def told_ns(self, told_ns: int) -> None:
        self._core.told_ns = told_ns

    def promised(self, contract: Limits) -> Limits:
        """The contract's limits, as far as this machine can keep them: for requests that set none of their own.

        A step that takes longer than the contract allows between two tokens would be a reason to refuse everybody, for
        good: what is refused is never measured again.
        """
        prices = self._cost.prices()
        if prices is self._promised_at and contract is self._promised_of:
            return self._promised
        self._promised_at, self._promised_of = prices, contract
        gap_ns = int(prices.stall_ns * _ROOM)
        lone_ns = (JOIN_STEPS + 1) * prices.step_ns + prices.chunk_ns[-1]  # a prompt of one chunk, before others join
        first_ns = int((max(prices.stall_ns, lone_ns) + prices.reserve_ns) * _ROOM)
        if gap_ns <= contract.per_token_ns and first_ns <= contract.first_token_ns:
            self._promised = contract
        else:
            first_ns, gap_ns = max(first_ns, contract.first_token_ns), max(gap_ns, contract.per_token_ns)
            self._promised = Limits(first_ns, gap_ns, contract.end_ns)
        return self._promised

    def ask(self, wish: Wish, asker: Asker) -> Grant | Booking | NoSlot:
        """A grant, or the redeemed booking of a client that is to be held until ``resume`` gives the grant.

        Raises ``Infeasible`` 422.
        """
        now = self._clock_ns()
        answer = self._priced().ask(wish, asker, now)
        kind = answer.kind
        if kind == _BUSY and not answer.counts:
            return self._busy(answer.start_ns, now, answer.ticket)
        if answer.counts:
            self._count(answer)
        if kind == _GRANTED:
            return Grant(answer.slot, answer.due_ns, booked=answer.booked)
        if kind == _HELD and answer.booking is not None:
            return answer.booking
        if kind == _INFEASIBLE:
            raise _infeasible(answer)
        return self._refusal(answer, wish, now)

    def ask_several(self, wish: Wish, count: int) -> list[int] | NoSlot:
        """``count`` slots from now on, for the same work each; all or none, and nothing is booked.

        Raises ``Infeasible`` 422.
        """
        now = self._clock_ns()
        self.sweep(now)
        calendar = self.calendar
        if (why := self._priced().never(wish)).kind == _INFEASIBLE:
            raise _infeasible(why)
        stall_ns = self._cost.prices().stall_ns
        if wish.limits.per_token_ns < stall_ns:
            raise Infeasible(
                f"the prompts of several answers may hold each other's tokens up for {stall_ns / _NS_PER_MS:.0f} ms, "
                f"and the request allows {wish.limits.per_token_ns / _NS_PER_MS:.0f} ms; allow more, or ask for one",
                param="n",
            )
        terms = _terms(wish.limits, now, urgent=wish.tier is Tier.PRIORITY)
        slots = []
        if wish.tier is not Tier.FLEX or calendar.free - count >= calendar.slots // _FLEX_LEAVES:
            slots = calendar.claim_all(wish.most, terms, count)
            if not slots and wish.least.chunks < wish.most.chunks:
                slots = calendar.claim_all(wish.least, terms, count)
        return slots or self.refuse_several(wish, count)

    def refuse_several(self, wish: Wish, count: int) -> NoSlot:
        """The refusal that tells when so many slots are free and one could start, and promises none of them."""
        now = self._clock_ns()
        start_ns = self.calendar.tell(wish.least, _terms(wish.limits, now, urgent=False))
        if start_ns is None:
            return BeyondHorizon("the slots cannot start this request in time; give it more time, or send it later")
        return self._busy(max(start_ns, now + self.calendar.next_open_ms(count) * _NS_PER_MS), now, "")

    def resume(self, booking: Booking) -> Grant | None:
        """The grant of a held client as soon as there is one."""
        slot, no_shows = self._priced().resume(booking, self._clock_ns())
        self._missed(no_shows)
        if slot < 0:
            return None
        self._promises.booking("kept")
        return Grant(slot, booking.due_ns, booked=True)

    def excuse(self, asker: Asker, key: Name) -> None:
        """Nobody is served now: if that breaks a promise to this client, it is void, and stands against nobody."""
        now = self._clock_ns()
        heard_ns = self.heard_ns
        booking = self.tickets.match(asker, key, now, None if heard_ns is None else min(now, heard_ns))
        if booking is not None and booking.start_ns - booking.early_ns <= now:
            self.void(booking)
            self.broken()

    def broken(self) -> None:
        """A client came in time for its booking and was not served."""
        self._promises.booking("broken")

    def refuse_longer(self, wish: Wish, asker: Asker) -> NoSlot:
        """The refusal of a request whose true length does not fit after all; its slot is released already."""
        now = self._clock_ns()
        return self._refusal(self._priced().refuse_longer(wish, asker, now), wish, now)

    def void(self, booking: Booking) -> None:
        """Its client has gone, or was served without it."""
        self._core.void(booking)

    def give_back(self, ticket: str, credential: Name) -> None:
        """Its client will not come; nothing where ``credential`` holds no such booking, or has come already."""
        booking = self.tickets.of_ticket(ticket, credential)
        if booking is not None:
            self.void(booking)

    def sweep(self, now_ns: int) -> None:
        """Void what nobody came for."""
        self._forget(now_ns)
        self._missed(self._core.sweep(now_ns))

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
        """After a step: the tokens that each who decodes has before it, and how many are held. See ``tail.py``."""
        self._core.ends_soon = is_worth_waiting(
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

    def _priced(self) -> _native.Admission:
        """The compiled decisions, over a calendar that has the prices of now."""
        self.calendar.core()
        return self._core

    def _refusal(self, answer: _native.Answer, wish: Wish, now: int) -> NoSlot:
        if answer.kind == _BUSY:
            return self._busy(answer.start_ns, now, answer.ticket)
        allowed_ns, stall_ns = wish.limits.per_token_ns, self._cost.prices().stall_ns
        if allowed_ns < stall_ns:
            return BeyondHorizon(
                "no slot can start this request in time with no other prompt read beside it; one may hold its tokens "
                f"up for {stall_ns / _NS_PER_MS:.0f} ms, and the request allows {allowed_ns / _NS_PER_MS:.0f} ms; "
                "allow more, or send it later"
            )
        return BeyondHorizon("no slot can start this request in time; give it more time, or send it later")

    def _busy(self, start_ns: int, now: int, ticket: str) -> SlotsBusy:
        wait_ms = max(1, -(-(start_ns - now) // _NS_PER_MS))
        return SlotsBusy(self._message, wait_ms, ticket or None)

    def _count(self, answer: _native.Answer) -> None:
        """What the decision says about bookings, for whoever watches."""
        promises = self._promises
        self._missed(answer.no_shows)
        if answer.came_ns is not None:
            promises.came(answer.came_ns)
        if answer.booked:
            promises.booking("kept")
        if answer.early:
            promises.booking("early")
        if answer.late:
            promises.booking("late")

    def _missed(self, no_shows: int) -> None:
        for _ in range(no_shows):
            self._promises.booking("no_show")


def _infeasible(answer: _native.Answer) -> Infeasible:
    return Infeasible(
        f"{_NEEDS[answer.needs]} {answer.needed_ns / _NS_PER_MS:.0f} ms on an idle server, and the request allows "
        f"{answer.limit_ns / _NS_PER_MS:.0f} ms; give it more time, shorten the prompt or lower max_tokens"
    )


def _terms(limits: Limits, now: int, *, urgent: bool) -> Terms:
    patience = NEVER if limits.patience_ns is None else now + limits.patience_ns
    return Terms(now, limits.first_token_ns, limits.per_token_ns, limits.end_ns, patience, urgent)


def build_admission(
    contract: Contract, slots: int, cost: CostTable, clock_ns: Callable[[], int], promises: Promises
) -> Admission:
    """Admission as the contract has it."""
    deadline = contract.deadline
    calendar = Calendar(
        slots,
        clock_ns,
        cost.prices,
        grace_ns=deadline.grace_ms * _NS_PER_MS,
        horizon_ns=deadline.horizon_ms * _NS_PER_MS,
        reserved=deadline.priority_slots,
    )
    return Admission(calendar, cost, clock_ns, contract.refusal.message, promises)
