"""Joins the decisions between a decoded request and a slot. Decides only: no sockets, no threads, no waiting.

The order matters (a flood must be refused before it costs anything): model name, then what bytes alone can tell, then
a slot on the upper bound of the length, and only for who holds a slot the tokeniser; then the true length tightens
the reservation or gives it back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from zerolayer.errors import (
    BeyondHorizon,
    Infeasible,
    InvalidRequest,
    ModelNotFound,
    SlotsBusy,
    Unavailable,
)
from zerolayer.guard.deadline.admission import Admission, Grant, Wish
from zerolayer.guard.deadline.booking import Booking, Work
from zerolayer.guard.deadline.limits import Limits, read_limits
from zerolayer.guard.deadline.tickets import Asker, read_asker
from zerolayer.guard.encoders import GrammarCompiler, MessageEncoder, TextEncoder
from zerolayer.guard.freshness import Freshness, Stamps, Verdict
from zerolayer.guard.length import prompt_param, too_long, utf8_bytes
from zerolayer.guard.offered import offered, tools_bytes, tools_tokens
from zerolayer.guard.overflow import newest_turns, without_repeats
from zerolayer.guard.token_share import TokenShare
from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Generation, chunk_of
from zerolayer.text.grammar import Grammar
from zerolayer.wire.schema import Message, Request, Route

_TOLD: Final = 0.8  # of the deadline: how much of it a default number of tokens may fill

# Above this many bytes of text the caller tokenises on the helper thread, so that the loop never stands still.
LONG_TEXT_BYTES = 4096


class Names(msgspec.Struct, frozen=True):
    """What ``model`` may say: the served name, or one of ``aliases`` (``*`` = anything)."""

    served: str
    aliases: frozenset[str] = frozenset()

    def known(self, name: str) -> bool:
        """Whether a request may call the model so."""
        return name == self.served or name in self.aliases or "*" in self.aliases

    def listed(self) -> tuple[str, ...]:
        """The names that ``GET /v1/models`` shows, the served one first."""
        return (self.served, *sorted(self.aliases - {"*", self.served}))


class Shape(msgspec.Struct, frozen=True):
    """The numbers the decisions rest on, constant after start. Lengths in tokens."""

    slot_tokens: int
    default_max_tokens: int
    vocabulary: int
    longest_piece_bytes: int
    template_tokens: int  # upper bound of what the chat template adds around one message
    bos_id: int | None = None
    add_bos: bool = False  # a bare text prompt begins with bos_id
    truncate: bool = False  # a conversation that is too long loses its oldest turns
    drop_duplicates: bool = False  # and user messages that repeat the one before them


class Arrival(msgspec.Struct, frozen=True):
    """What the headers of a request say: its limits, the age of its input, and who asks."""

    limits: Limits
    stamps: Stamps
    verdict: Verdict
    asker: Asker
    key: Hashable  # route and body


class Reservation(msgspec.Struct, frozen=True):
    """A claimed slot, held on the upper bound until ``confirm`` or ``release``."""

    slot: int
    long: bool  # tokenise off the loop
    wish: Wish
    asker: Asker
    max_tokens: int  # at most; what was asked for, or the default, cut to what the deadline allows
    upper: int = 0  # bound of the prompt's tokens; 0 where it was exact
    booked: bool = False
    compiles: bool = False  # its grammar is not known yet: compile off the loop, and off the tokeniser's thread
    others: tuple[int, ...] = ()  # slots of the further answers

    @property
    def slots(self) -> tuple[int, ...]:
        """A slot for each answer, in their order."""
        return (self.slot, *self.others)


class Held(msgspec.Struct, frozen=True):
    """A booked client that came a moment early, or whose slot is not quite free; ``Guard.resume`` has its slot."""

    booking: Booking
    then: Reservation  # without its slot


class Prompt(msgspec.Struct, frozen=True):
    """What a request's text became, how many of its messages are not in it, and what its answer is held to."""

    ids: Sequence[int]
    truncated: int = 0
    duplicates: int = 0
    grammar: Grammar | None = None


class Guard:
    """Admission. One writer: the event loop; only ``tokenise`` and ``prompt`` may be called on another thread."""

    def __init__(
        self,
        *,
        names: Names,
        shape: Shape,
        admission: Admission,
        cost: CostTable,
        limits: Limits,
        freshness: Freshness,
        chunk_tokens: int,
        encoder: TextEncoder,
        template: MessageEncoder,
        grammars: GrammarCompiler,
    ) -> None:
        self.names = names
        self.shape = shape
        self.admission = admission
        self.slots = admission.calendar
        self.freshness = freshness
        self._cost = cost
        self._limits = limits
        self.chunk_tokens = chunk_tokens
        self._encoder = encoder
        self._template = template
        self._share = TokenShare()
        self._grammars = grammars
        self._closed: Unavailable | None = None
        self._stalled: Unavailable | None = None

    def close(self, why: Unavailable) -> None:
        """Refuse everything from now on (draining, or an engine that cannot go on)."""
        self._closed = why

    def stall(self, why: Unavailable | None) -> None:
        """Refuse everything while the engine stands still; None when it moves again."""
        self._stalled = why

    @property
    def closed(self) -> Unavailable | None:
        """Why nothing is admitted, or None."""
        return self._closed or self._stalled

    def arrive(
        self, request: Request, headers: Mapping[bytes, bytes], *, credential: Hashable, body: bytes, wall_ms: int
    ) -> Arrival:
        """Read what the headers say and check the input's age. ``wall_ms`` is the wall clock in Unix milliseconds.

        Raises ``InvalidRequest`` 400, ``DeadlineExpired`` 422, ``StaleInput`` 409.
        """
        get = headers.get
        contract = self.admission.promised(self._limits)
        limits = read_limits(get, deadline_ms=request.deadline_ms, stream=request.stream, contract=contract)
        stamps = self.freshness.read(get, request.event_time_ms, request.ingest_time_ms, request.max_age_ms)
        # The keyed hash of the process; equal lengths on top of it. Two bodies that collide would share a booking.
        key = (request.route, len(body), hash(body))
        return Arrival(
            limits, stamps, self.freshness.judge(stamps, wall_ms), read_asker(headers, credential, request.ticket), key
        )

    def reserve(self, request: Request, arrival: Arrival) -> Reservation | Held:
        """Claim a slot on the upper bound of the request's length. Costs the same whatever the text; never tokenises.

        Raises ``Unavailable`` 503, ``ModelNotFound`` 404, ``Infeasible`` 422, ``SlotsBusy`` and ``BeyondHorizon`` 429.
        """
        text_bytes, lower, upper = self._admissible(request)
        tokens = self._wanted(request, arrival.limits, lower)
        work = partial(self._work, max_tokens=min(tokens, self.shape.slot_tokens), scored=_is_scored(request))
        least = promised = most = work(upper)
        if lower < upper:
            least, promised = work(lower), work(max(lower, self._share.bound(upper)))
        wish = Wish(most, least, promised, arrival.limits, request.tier, arrival.key)
        long, unsure = text_bytes > LONG_TEXT_BYTES, upper if lower < upper else 0
        compiles = self._grammars.slow(request)
        then = Reservation(-1, long, wish, arrival.asker, tokens, upper=unsure, compiles=compiles)
        if request.answers > 1:
            slot, *others = self.admission.ask_several(wish, request.answers)
            return msgspec.structs.replace(then, slot=slot, others=tuple(others))
        answer = self.admission.ask(wish, arrival.asker)
        if isinstance(answer, Booking):
            return Held(answer, then)
        return msgspec.structs.replace(then, slot=answer.slot, booked=answer.booked)

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

    def leave(self, held: Held) -> None:
        """A held client has gone."""
        self.admission.void(held.booking)

    def check(self, request: Request) -> bool:
        """Whether the text is long, so that it must be tokenised off the loop. For requests that take no slot.

        Raises ``Unavailable`` 503, ``ModelNotFound`` 404, ``Infeasible`` 422.
        """
        return self._admissible(request)[0] > LONG_TEXT_BYTES

    def tokenise(self, request: Request) -> list[int]:
        """The prompt's token ids, however many. Pure; any thread.

        Raises ``InvalidRequest`` for an id outside the vocabulary and for an order of roles that the model refuses.
        """
        if request.route is not Route.COMPLETIONS:
            return self._template.encode(self._messages(request), offered(request)) + self._prefill(request)
        shape = self.shape
        if not isinstance(request.prompt, str):
            ids = list(request.prompt)
            if ids and not (min(ids) >= 0 and max(ids) < shape.vocabulary):
                raise InvalidRequest(
                    f"a token id of the prompt is outside the vocabulary (0 to {shape.vocabulary - 1})", param="prompt"
                )
            return ids
        ids = self._encoder.encode(request.prompt)
        if shape.bos_id is not None and (shape.add_bos or not ids):
            ids.insert(0, shape.bos_id)
        return ids

    def prompts(self, request: Request) -> list[Prompt]:
        """What the model is to read, for each prompt of the request. Pure; any thread. Raises as ``tokenise``."""
        self._check_bias(request)
        if not request.further:
            return [self._prompt(request)]
        return [
            self._prompt(msgspec.structs.replace(request, prompt=prompt, further=()))
            for prompt in (request.prompt, *request.further)
        ]

    def _check_bias(self, request: Request) -> None:
        for token_id, _ in request.sampling.logit_bias:
            if token_id >= self.shape.vocabulary:
                raise InvalidRequest(
                    f"a token id of 'logit_bias' is outside the vocabulary (0 to {self.shape.vocabulary - 1})",
                    param="logit_bias",
                )

    def _prompt(self, request: Request) -> Prompt:
        """``tokenise``, and the oldest turns left out where the contract allows it."""
        shape, messages, ids = self.shape, self._messages(request), self.tokenise(request)
        grammar = self._grammars.of(request)
        duplicates = len(request.messages) - len(messages)
        if shape.truncate and messages and not self._fits(request, len(ids)):
            # An answer of the default length is only wished for: at most half of the slot is kept free for it.
            wished = request.max_tokens is None or request.fills_slot
            most = shape.slot_tokens // 2 if wished else shape.slot_tokens
            answer = min(request.max_tokens or shape.default_max_tokens, most)
            prefill, encode = self._prefill(request), partial(self._template.encode, tools=offered(request))
            cut = newest_turns(messages, encode, shape.slot_tokens - answer - len(prefill))
            if cut is not None:
                return Prompt(cut.ids + prefill, cut.dropped, duplicates, grammar)
        return Prompt(ids, duplicates=duplicates, grammar=grammar)

    def confirm(self, reservation: Reservation, request: Request, prompts: Sequence[Prompt]) -> list[Generation]:
        """Tighten the reservation to the true lengths, or release it and raise the request's own refusal.

        Returns the work of each of ``reservation.slots``.
        """
        scores = request.sampling.top_logprobs if _is_scored(request) else None
        generations = []
        try:
            for part, slot, place in zip(request.each(), reservation.slots, range(request.answers), strict=True):
                prompt = prompts[place // request.n]
                ids = prompt.ids
                max_tokens = self._fit(request, reservation.max_tokens, len(ids))
                if reservation.upper:
                    self._share.observe(reservation.upper, len(ids))
                work = self._work(len(ids), max_tokens, scored=scores is not None)
                if not self.slots.confirm(slot, work):
                    self.release(reservation)
                    if reservation.booked:
                        self.admission.broken()
                    wish = msgspec.structs.replace(reservation.wish, most=work, least=work, promised=work)
                    raise self._longer(wish, reservation.asker, request.answers)
                work_of = partial(Generation, prompt_logprobs=scores, grammar=prompt.grammar)
                generations.append(work_of(ids, part.sampling, max_tokens, request.ignore_eos))
        except InvalidRequest:
            self.release(reservation)
            raise
        return generations

    def _longer(self, wish: Wish, asker: Asker, answers: int) -> SlotsBusy | BeyondHorizon:
        """The refusal of what does not fit now that its length is known: booked like any other."""
        if answers > 1:
            return self.admission.refuse_several(wish, answers)
        return self.admission.refuse_longer(wish, asker)

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back that the engine never saw."""
        for slot in reservation.slots:
            self.slots.release(slot)

    def _admissible(self, request: Request) -> tuple[int, int, int]:
        """``_bounds``, if the request may be looked at at all."""
        if self.closed is not None:
            raise self.closed
        if not self.names.known(request.model):
            raise ModelNotFound(
                f"the model does not exist here; this service serves {self.names.served!r}", param="model"
            )
        if not request.further:
            return self._bounds(request)
        several = [self._bounds(msgspec.structs.replace(part, n=1)) for part in request.each()]
        return sum(one[0] for one in several), min(one[1] for one in several), max(one[2] for one in several)

    def _work(self, prompt_tokens: int, max_tokens: int, *, scored: bool = False) -> Work:
        prices, chunk = self._cost.prices(), self.chunk_tokens
        full_ns = prices.chunk(chunk)
        if scored:  # more and shorter chunks
            chunks, each_ns = -(-prompt_tokens // chunk_of(chunk, scored=True)), int(full_ns * self._cost.scored_share)
            return Work(chunks, chunks * each_ns, each_ns, max_tokens)
        full, rest = divmod(prompt_tokens, chunk)
        return Work(full + (rest > 0), full * full_ns + (prices.chunk(rest) if rest else 0), full_ns, max_tokens)

    def _bounds(self, request: Request) -> tuple[int, int, int]:
        """Bytes of text, and bounds of the prompt's tokens: no token stands for less than a byte."""
        shape, written = self.shape, tools_bytes(request) if request.tools else 0
        if request.route is not Route.COMPLETIONS:
            text_bytes = utf8_bytes(request.prefill) + sum([utf8_bytes(turn.content) for turn in request.messages])
            upper = text_bytes + shape.template_tokens * (len(request.messages) + 1)
            upper += tools_tokens(written)
        elif isinstance(request.prompt, str):
            text_bytes = upper = utf8_bytes(request.prompt)
        else:
            upper = len(request.prompt)
            if upper > shape.slot_tokens:
                raise too_long(request, upper, request.max_tokens or 1, shape.slot_tokens)
            return 0, max(1, upper), max(1, upper)
        lower = text_bytes // shape.longest_piece_bytes
        truncates = shape.truncate and request.route is not Route.COMPLETIONS
        if lower > shape.slot_tokens and not truncates:
            if request.fills_slot:
                raise too_long(request, lower, 1, shape.slot_tokens)
            raise Infeasible(
                f"the text is at least {lower} tokens long; a slot holds {shape.slot_tokens}. Shorten it",
                param=prompt_param(request),
            )
        return text_bytes + written, max(1, min(lower, shape.slot_tokens)), min(upper + 1, shape.slot_tokens)

    def _fit(self, request: Request, wanted: int, prompt_tokens: int) -> int:
        """The ``max_tokens`` that is applied: a default that does not fit is cut, a chosen one is refused."""
        if prompt_tokens == 0:
            raise InvalidRequest("the prompt is empty; send at least one token", param="prompt")
        if not self._fits(request, prompt_tokens):
            raise too_long(request, prompt_tokens, wanted, self.shape.slot_tokens)
        return min(wanted, self.shape.slot_tokens - prompt_tokens)

    def _fits(self, request: Request, prompt_tokens: int) -> bool:
        asked = 1 if request.fills_slot else request.max_tokens or 1
        return prompt_tokens + asked <= self.shape.slot_tokens

    def _prefill(self, request: Request) -> list[int]:
        return self._encoder.encode(request.prefill) if request.prefill else []

    def _messages(self, request: Request) -> Sequence[Message]:
        return without_repeats(request.messages) if self.shape.drop_duplicates else request.messages

    def _wanted(self, request: Request, limits: Limits, prompt_tokens: int) -> int:
        """The tokens that were asked for; else the default, cut to what the deadline allows."""
        if request.max_tokens is not None:
            return max(1, request.max_tokens)  # of an empty answer one token is computed, and not shown
        default, prices = self.shape.default_max_tokens, self._cost.prices()
        work = self._work(prompt_tokens, default)
        allowed = int(limits.end_ns * _TOLD)
        if work.need_ns(prices) <= allowed:
            return default
        return max(1, min(default, (allowed - work.first_ns(prices)) // max(1, prices.step_ns) + 1))


def _is_scored(request: Request) -> bool:
    """Whether the reply shows the prompt with its log probabilities."""
    return request.echo and request.sampling.top_logprobs is not None
