"""Joins the decisions between a decoded request and a slot. Decides only: no sockets, no threads, no waiting.

The order matters (a flood must be refused before it costs anything): model name, then what bytes alone can tell, then
a slot on the upper bound of the length, and only for who holds a slot the tokeniser; then the true length tightens
the reservation or gives it back.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from zerolayer.errors import (
    BeyondHorizon,
    InvalidRequest,
    ModelNotFound,
    PermissionRefused,
    Unavailable,
    ZerolayerError,
)
from zerolayer.guard._native import sha256
from zerolayer.guard.budget.budgets import Budgets, Hold, Size
from zerolayer.guard.deadline.admission import Admission, Grant, NoSlot, Wish
from zerolayer.guard.deadline.booking import Booking, Work
from zerolayer.guard.deadline.limits import Limits, read_limits
from zerolayer.guard.deadline.needs import Needs
from zerolayer.guard.deadline.reservation import Arrival, Held, Reservation
from zerolayer.guard.deadline.tickets import Name, read_asker
from zerolayer.guard.freshness import TIMELESS, Freshness
from zerolayer.guard.identity import ANYONE, Identity
from zerolayer.guard.prompts.length import is_scored
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.guard.prompts.reader import Reader
from zerolayer.guard.shape import Names
from zerolayer.guard.token_share import TokenShares
from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Generation
from zerolayer.wire.schema import Request, Sampling, Tier

_Claimed = tuple[Grant, Booking | None, tuple[int, ...]]
_NO_SLOT: Final = Grant(-1, 0)
_UNMEASURED: Final = Size(0)  # of a request that is held against nothing
_NS_PER_MS: Final = 1_000_000
_PRESUMED: Final = 1.05  # times what texts of a size never exceeded of late

# Above this many bytes of text the caller tokenises on the helper thread, so that the loop never stands still.
LONG_TEXT_BYTES = 4096


class Guard:
    """Admission. One writer: the event loop; only its ``reader`` may be used on another thread.

    ``cores`` are those of the engine, for budgets of compute.
    """

    def __init__(
        self,
        *,
        names: Names,
        reader: Reader,
        admission: Admission,
        cost: CostTable,
        limits: Limits,
        freshness: Freshness,
        chunk_tokens: int,
        budgets: Budgets | None = None,
        cores: int = 1,
    ) -> None:
        self.budgets = budgets or Budgets(lambda: 0)  # without limits it needs no clock
        self._cores = cores
        self.names = names
        self.reader = reader
        self.admission = admission
        self.slots = admission.calendar
        self.drafts = admission.drafts
        self.freshness = freshness
        self._cost = cost
        self._limits = limits
        self.chunk_tokens = chunk_tokens
        self._needs = Needs(cost, chunk_tokens)
        self.work = self._needs.work
        self._texts = TokenShares()
        self._closed: Unavailable | None = None
        self._stalled: Unavailable | None = None
        self._unrecorded: Unavailable | None = None

    def close(self, why: Unavailable | None) -> None:
        """Refuse everything from now on (draining, or an engine that cannot go on); None to admit again."""
        self._closed = why

    def stall(self, why: Unavailable | None) -> None:
        """Refuse everything while the engine stands still; None when it moves again."""
        self._stalled = why

    def refuse_unrecorded(self, why: Unavailable | None) -> None:
        """Refuse everything while no record of it could be written; None when it can again."""
        self._unrecorded = why

    @property
    def closed(self) -> Unavailable | None:
        """Why nothing is admitted, or None."""
        return self._closed or self._stalled or self._unrecorded

    @property
    def stalled(self) -> Unavailable | None:
        """Why the engine is given nothing, not even what was admitted; or None."""
        return self._stalled

    def arrive(
        self,
        request: Request,
        headers: Mapping[bytes, bytes],
        *,
        credential: Name,
        body: bytes,
        wall_ms: Callable[[], int],
        passed_ns: int = 0,
        identity: Identity = ANYONE,
    ) -> Arrival:
        """Read what the headers say and check the input's age. ``wall_ms`` is the wall clock in Unix milliseconds.

        It is read only where the input tells a time. ``passed_ns`` is the time since the request's first byte.

        Raises ``InvalidRequest`` 400, ``DeadlineExpired`` 422, ``StaleInput`` 409.
        """
        get = headers.get
        contract = self.admission.promised(self._limits)
        limits = read_limits(get, deadline_ms=request.deadline_ms, stream=request.stream, contract=contract)
        stamps = self.freshness.read(get, request.event_time_ms, request.ingest_time_ms, request.max_age_ms)
        key = (request.route, sha256(body))  # the same in another process
        verdict = TIMELESS if stamps.born_ms is None else self.freshness.judge(stamps, wall_ms())
        left = limits.after(passed_ns + verdict.wait_ms * _NS_PER_MS)
        return Arrival(limits, left, stamps, verdict, read_asker(headers, credential, request.ticket), key, identity)

    def reserve(self, request: Request, arrival: Arrival) -> Reservation | Held | NoSlot:
        """Claim budgets and a slot on the upper bound of the length. Costs the same whatever the text; never tokenises.

        Raises ``Unavailable`` 503, ``ModelNotFound`` 404, ``PermissionRefused`` 403, ``Infeasible`` 422,
        ``RateLimited`` and ``BudgetSpent`` 429.
        """
        if self._stalled is not None:
            self.admission.excuse(arrival.asker, arrival.key)
        text_bytes, lower, size = self._admissible(request, arrival.identity)
        slot_tokens = self.reader.shape.slot_tokens
        upper = min(size, slot_tokens)
        tokens = self._wanted(request, arrival.left, lower)
        identity, answers = arrival.identity, request.answers
        fits, work_of = min(tokens, slot_tokens), self._needs.scored if is_scored(request) else self._needs.plain
        prices = self._cost.prices()
        texts = self._texts.of(identity.tenant)
        least = promised = most = work_of(prices, upper, fits)
        if lower < upper:
            least = work_of(prices, lower, fits)
            bound = texts.bound(size, upper)
            if bound < upper:
                promised = work_of(prices, max(lower, bound), fits)
        wish = Wish(most, least, promised, arrival.left, min(request.tier, identity.tier), arrival.key)
        smallest = largest = _UNMEASURED
        if self.budgets.bind(identity):
            smallest, largest = self._size(least, lower + fits, answers), self._size(most, upper + fits, answers)
        hold = self.budgets.reserve(identity, smallest, largest)
        claimed = self._claim(wish, arrival, hold, answers)
        if isinstance(claimed, ZerolayerError):
            return claimed
        grant, booking, others = claimed
        reservation = Reservation(
            grant.slot,
            text_bytes > LONG_TEXT_BYTES,
            wish,
            arrival,
            tokens,
            hold,
            texts,
            size=size if lower < upper and not request.further else 0,
            booked=grant.booked,
            compiles=self.reader.grammars.slow(request),
            others=others,
        )
        return reservation if booking is None else Held(booking, reservation)

    def _claim(self, wish: Wish, arrival: Arrival, hold: Hold, answers: int = 1) -> _Claimed | NoSlot:
        """A slot for each answer, or the booking of a client that is to be held. Else ``hold`` is given back."""
        answer: Grant | Booking | NoSlot | list[int]
        try:
            if answers == 1:
                answer = self.admission.ask(wish, arrival.asker)
            else:
                answer = self.admission.ask_several(wish, answers)
        except BaseException:
            hold.release()
            raise
        if isinstance(answer, ZerolayerError):
            hold.release()  # a refusal uses nothing, and is no request
            return self._not_in_vain(arrival, answer)
        if isinstance(answer, list):
            return Grant(answer[0], 0), None, tuple(answer[1:])
        return (_NO_SLOT, answer, ()) if isinstance(answer, Booking) else (answer, None, ())

    def _not_in_vain(self, arrival: Arrival, refusal: NoSlot) -> NoSlot:
        """Nobody is told to come at a time at which its input is too old."""
        if not arrival.stamps.checked or isinstance(refusal, BeyondHorizon):
            return refusal
        lasts_ms = self.freshness.lasts_ms(arrival.stamps, arrival.verdict)
        if lasts_ms is None or refusal.retry_after_ms <= lasts_ms:
            return refusal
        self.admission.give_back(refusal.ticket or "", arrival.asker.credential)
        return BeyondHorizon("no slot is free before the input is too old; send it later, with fresher input")

    def reserve_draft(self, request: Request, arrival: Arrival) -> Reservation:
        """Claim budgets and the place of drafts for a request that only fills the prompt cache.

        Raises as ``reserve``, and ``DraftRefused`` 429.
        """
        _, lower, upper = self._admissible(request, arrival.identity)
        least, most = self.work(lower, 1), self.work(upper, 1)
        wish = Wish(most, least, most, arrival.left, Tier.FLEX, arrival.key)
        self.drafts.claim(arrival.left.end_ns)
        try:
            hold = self.budgets.reserve(arrival.identity, self._size(least, lower), self._size(most, upper))
        except BaseException:
            self.drafts.release()
            raise
        texts = self._texts.of(arrival.identity.tenant)
        return Reservation(self.drafts.number, True, wish, arrival, 1, hold, texts)

    def confirm_draft(self, reservation: Reservation, request: Request, prompt: Prompt) -> Generation:
        """What the engine is to read. Raises what ``confirm`` raises; the caller releases the reservation then."""
        tokens = len(prompt.ids)
        self.reader.fit(request, 1, tokens)
        refusal = reservation.hold.tighten(self._size(self.work(tokens, 1), tokens))
        if refusal is not None:
            raise refusal
        reservation.hold.begin()
        return Generation(prompt.ids, Sampling(temperature=0.0), 1, ignore_eos=True)

    def resume(self, held: Held) -> Reservation | None:
        """The slot of a held client as soon as there is one. Raises ``Unavailable`` 503."""
        if self.closed is not None:
            raise self.closed
        grant: Grant | None = self.admission.resume(held.booking)
        return None if grant is None else msgspec.structs.replace(held.then, slot=grant.slot, booked=True)

    def broken(self, held: Held) -> None:
        """No slot came free for a held client in time, though it was promised."""
        self.admission.broken()
        self.leave(held)

    def put_off(self, held: Held) -> None:
        """A held client will ask again, and still has its booking."""
        held.then.hold.release()
        held.booking.held = False

    def leave(self, held: Held) -> None:
        """A held client has gone."""
        held.then.hold.release()
        self.admission.void(held.booking)

    def presume(self, request: Request, reservation: Reservation) -> Reservation | Held | NoSlot:
        """The slot, confirmed by what texts of this size hardly ever exceed: ``settle`` is to find out.

        Those who are decided until then are decided as if that was its true length. Where this breaks a promise, or
        cannot be known, the slot stays as it was reserved.
        """
        if not reservation.size or reservation.booked or request.answers > 1 or is_scored(request):
            return reservation
        upper = min(reservation.size, self.reader.shape.slot_tokens)
        presumed = min(upper, int(reservation.texts.bound(reservation.size, upper) * _PRESUMED) + 1)
        if self.slots.confirm(reservation.slot, self.work(presumed, reservation.wish.most.tokens)):
            return msgspec.structs.replace(reservation, presumed=presumed)
        return self._anew(reservation, reservation.wish)

    def settle(self, reservation: Reservation, prompts: Sequence[Prompt]) -> Reservation | Held | NoSlot:
        """The same reservation, tightened to its true length; where that is more than presumed, what there is now."""
        tokens = len(prompts[0].ids)
        work = self.work(tokens, reservation.wish.most.tokens)
        if tokens > reservation.presumed:
            wish = msgspec.structs.replace(reservation.wish, most=work, least=work, promised=work)
            return self._anew(reservation, wish)
        self.slots.shorten(reservation.slot, work)
        return reservation

    def _anew(self, reservation: Reservation, wish: Wish) -> Reservation | Held | NoSlot:
        """As if it had just come, with another wish."""
        self.slots.release(reservation.slot)
        claimed = self._claim(wish, reservation.arrival, reservation.hold)
        if isinstance(claimed, ZerolayerError):
            return claimed
        grant, booking, _ = claimed
        then = msgspec.structs.replace(reservation, slot=grant.slot, wish=wish, presumed=0, booked=grant.booked)
        return then if booking is None else Held(booking, then)

    def check(self, request: Request, identity: Identity = ANYONE) -> bool:
        """Whether the text is long, so that it must be tokenised off the loop. For requests that take no slot.

        Raises ``Unavailable`` 503, ``ModelNotFound`` 404, ``PermissionRefused`` 403, ``Infeasible`` 422.
        """
        return self._admissible(request, identity)[0] > LONG_TEXT_BYTES

    def confirm(self, reservation: Reservation, request: Request, prompts: Sequence[Prompt]) -> list[Generation]:
        """The work of each slot, reserved by true lengths; or the request's own refusal, and no slot any more."""
        scores = request.sampling.top_logprobs if is_scored(request) else None
        generations, works = [], []
        try:
            for part, slot, place in zip(request.each(), reservation.slots, range(request.answers), strict=True):
                prompt = prompts[place // request.n]
                ids = prompt.ids
                max_tokens = self.reader.fit(request, reservation.max_tokens, len(ids))
                if reservation.size:
                    reservation.texts.observe(reservation.size, len(ids))
                work = self.work(len(ids), max_tokens, scored=scores is not None)
                if not reservation.presumed and not self.slots.confirm(slot, work):
                    self.release(reservation)
                    if reservation.booked:
                        self.admission.broken()
                    wish = msgspec.structs.replace(reservation.wish, most=work, least=work, promised=work)
                    raise self._longer(wish, reservation.arrival, request.answers)
                works.append(work)
                # Packed here, where its numbers were just made: between two steps each would be a look into memory.
                packed = array("i", ids)
                work_of = partial(Generation, prompt_logprobs=scores, grammar=prompt.grammar)
                generations.append(work_of(packed, part.sampling, max_tokens, request.ignore_eos))
        except InvalidRequest:
            self.release(reservation)
            raise
        hold = reservation.hold
        if hold.accounts:
            tokens = sum(len(made.prompt) + made.max_tokens for made in generations)
            compute_us = sum(self._size(work, 0).compute_us for work in works)
            refusal: ZerolayerError | None = hold.tighten(Size(tokens, compute_us))
            if refusal is not None:
                self.release(reservation)
                raise refusal
        hold.begin()
        return generations

    def _longer(self, wish: Wish, arrival: Arrival, answers: int) -> NoSlot:
        """The refusal of what does not fit now that its length is known: booked like any other."""
        if answers > 1:
            return self._not_in_vain(arrival, self.admission.refuse_several(wish, answers))
        return self._not_in_vain(arrival, self.admission.refuse_longer(wish, arrival.asker))

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back that the engine never saw."""
        for slot in reservation.slots:
            if slot == self.drafts.number:
                self.drafts.release()
            else:
                self.slots.release(slot)
        reservation.hold.release()

    def _size(self, work: Work, tokens: int, answers: int = 1) -> Size:
        """What ``work`` is at most in the terms of budgets: alone on the engine, at the prices of a full one."""
        compute_us = (work.steps * self._cost.prices().step_ns + work.chunk_ns) * self._cores // 1000
        return Size(tokens * answers, compute_us * answers)

    def _admissible(self, request: Request, identity: Identity) -> tuple[int, int, int]:
        """``Reader.bounds``, if the request may be looked at at all."""
        if self.closed is not None:
            raise self.closed
        if not self.names.known(request.model):
            raise ModelNotFound(
                f"the model does not exist here; this service serves {self.names.served!r}", param="model"
            )
        if identity.models is not None and request.model not in identity.models:
            raise PermissionRefused("the API key may not use this model; ask its issuer", param="model")
        if not request.further:
            return self.reader.bounds(request)
        several = [self.reader.bounds(msgspec.structs.replace(part, n=1)) for part in request.each()]
        return sum(one[0] for one in several), min(one[1] for one in several), max(one[2] for one in several)

    def _wanted(self, request: Request, limits: Limits, prompt_tokens: int) -> int:
        """The tokens that were asked for; a default, or a number that only bounds, cut to what the deadline allows."""
        wished = request.max_tokens
        if wished is not None and not request.fills_slot:
            return max(1, wished)  # of an empty answer one token is computed, and not shown
        if wished is None:
            wished = self.reader.shape.default_max_tokens
        return self._needs.within(limits.end_ns, prompt_tokens, wished)
