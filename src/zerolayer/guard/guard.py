"""Joins the decisions between a decoded request and a slot. Decides only: no sockets, no threads, no waiting.

The order matters (a flood must be refused before it costs anything): model name, then what bytes alone can tell, then
a slot on the upper bound of the length, and only for who holds a slot the tokeniser; then the true length tightens
the reservation or gives it back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from zerolayer.contract import Contract
from zerolayer.errors import (
    BeyondHorizon,
    ContextTooLong,
    Infeasible,
    InvalidRequest,
    ModelNotFound,
    SlotsBusy,
    Unavailable,
)
from zerolayer.guard.deadline.admission import Admission, Grant, Wish
from zerolayer.guard.deadline.booking import Booking, Work
from zerolayer.guard.deadline.limits import Limits, of_contract, read_limits
from zerolayer.guard.deadline.tickets import Asker, read_asker
from zerolayer.guard.freshness import Freshness, Stamps, Verdict
from zerolayer.guard.lengths import Lengths
from zerolayer.guard.overflow import newest_turns, without_repeats
from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Generation
from zerolayer.wire.schema import Message, Request, Route

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel

_TOLD: Final = 0.8  # of the deadline: how much of it a default number of tokens may fill

# Above this many bytes of text the caller tokenises on the helper thread, so that the loop never stands still.
LONG_TEXT_BYTES = 4096


class TextEncoder(Protocol):
    """What the guard needs of ``text``'s encoder."""

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; never a special token."""


class MessageEncoder(Protocol):
    """What the guard needs of ``text``'s chat template."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation, up to the place where the assistant speaks."""


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


class Held(msgspec.Struct, frozen=True):
    """A booked client that came a moment early, or whose slot is not quite free; ``Guard.resume`` has its slot."""

    booking: Booking
    then: Reservation  # without its slot


class Prompt(msgspec.Struct, frozen=True):
    """What a request's text became, and how many of its messages are not in it."""

    ids: Sequence[int]
    truncated: int = 0
    duplicates: int = 0


class Guard:
    """Admission. One writer: the event loop; only ``tokenise`` may be called on another thread."""

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
        self._lengths = Lengths()
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
        limits = read_limits(get, deadline_ms=request.deadline_ms, stream=request.stream, contract=self._limits)
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
        most = self._work(upper, min(tokens, self.shape.slot_tokens))
        least = promised = most
        if lower < upper:
            least = self._work(lower, most.tokens)
            promised = self._work(max(lower, self._lengths.bound(upper)), most.tokens)
        wish = Wish(most, least, promised, arrival.limits, request.tier, arrival.key)
        then = Reservation(-1, text_bytes > LONG_TEXT_BYTES, wish, arrival.asker, tokens, upper if lower < upper else 0)
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
        if request.route is Route.CHAT:
            return self._template.encode(self._messages(request))
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

    def prompt(self, request: Request) -> Prompt:
        """What the model is to read: ``tokenise``, and the oldest turns left out where the contract allows it."""
        shape, messages, ids = self.shape, self._messages(request), self.tokenise(request)
        duplicates = len(request.messages) - len(messages)
        if shape.truncate and messages and not self._fits(request, len(ids)):
            # An answer of the default length is only wished for: at most half of the slot is kept free for it.
            most = shape.slot_tokens // 2 if request.max_tokens is None else shape.slot_tokens
            answer = min(request.max_tokens or shape.default_max_tokens, most)
            cut = newest_turns(messages, self._template.encode, shape.slot_tokens - answer)
            if cut is not None:
                return Prompt(cut.ids, cut.dropped, duplicates)
        return Prompt(ids, duplicates=duplicates)

    def confirm(self, reservation: Reservation, request: Request, ids: Sequence[int]) -> Generation:
        """Tighten the reservation to the true length, or release it and raise the request's own refusal."""
        try:
            max_tokens = self._fit(request, reservation.max_tokens, len(ids))
        except InvalidRequest:
            self.release(reservation)
            raise
        if reservation.upper:
            self._lengths.observe(reservation.upper, len(ids))
        work = self._work(len(ids), max_tokens)
        if not self.slots.confirm(reservation.slot, work):
            self.release(reservation)
            if reservation.booked:
                self.admission.broken()
            wish = msgspec.structs.replace(reservation.wish, most=work, least=work, promised=work)
            raise self._longer(wish, reservation.asker)
        return Generation(ids, request.sampling, max_tokens, request.ignore_eos)

    def _longer(self, wish: Wish, asker: Asker) -> SlotsBusy | BeyondHorizon:
        """The refusal of what does not fit now that its length is known: booked like any other."""
        return self.admission.refuse_longer(wish, asker)

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back that the engine never saw."""
        self.slots.release(reservation.slot)

    def _admissible(self, request: Request) -> tuple[int, int, int]:
        """``_bounds``, if the request may be looked at at all."""
        if self.closed is not None:
            raise self.closed
        if not self.names.known(request.model):
            raise ModelNotFound(
                f"the model does not exist here; this service serves {self.names.served!r}", param="model"
            )
        return self._bounds(request)

    def _work(self, prompt_tokens: int, max_tokens: int) -> Work:
        prices, chunk = self._cost.prices(), self.chunk_tokens
        full, rest = divmod(prompt_tokens, chunk)
        full_ns = prices.chunk(chunk)
        return Work(full + (rest > 0), full * full_ns + (prices.chunk(rest) if rest else 0), full_ns, max_tokens)

    def _bounds(self, request: Request) -> tuple[int, int, int]:
        """Bytes of text, and bounds of the prompt's tokens: no token stands for less than a byte."""
        shape = self.shape
        if request.route is Route.CHAT:
            text_bytes = sum(_utf8_bytes(message.content) for message in request.messages)
            upper = text_bytes + shape.template_tokens * (len(request.messages) + 1)
        elif isinstance(request.prompt, str):
            text_bytes = upper = _utf8_bytes(request.prompt)
        else:
            upper = len(request.prompt)
            if upper > shape.slot_tokens:
                raise _too_long(request, upper, request.max_tokens or 1, shape.slot_tokens)
            return 0, max(1, upper), max(1, upper)
        lower = text_bytes // shape.longest_piece_bytes
        truncates = shape.truncate and request.route is Route.CHAT
        if lower > shape.slot_tokens and not truncates:
            raise Infeasible(
                f"the text is at least {lower} tokens long; a slot holds {shape.slot_tokens}. Shorten it",
                param=_prompt_param(request),
            )
        return text_bytes, max(1, min(lower, shape.slot_tokens)), min(upper + 1, shape.slot_tokens)

    def _fit(self, request: Request, wanted: int, prompt_tokens: int) -> int:
        """The ``max_tokens`` that is applied: a default that does not fit is cut, a chosen one is refused."""
        if prompt_tokens == 0:
            raise InvalidRequest("the prompt is empty; send at least one token", param="prompt")
        if not self._fits(request, prompt_tokens):
            raise _too_long(request, prompt_tokens, wanted, self.shape.slot_tokens)
        return min(wanted, self.shape.slot_tokens - prompt_tokens)

    def _fits(self, request: Request, prompt_tokens: int) -> bool:
        return prompt_tokens + (request.max_tokens or 1) <= self.shape.slot_tokens

    def _messages(self, request: Request) -> Sequence[Message]:
        return without_repeats(request.messages) if self.shape.drop_duplicates else request.messages

    def _wanted(self, request: Request, limits: Limits, prompt_tokens: int) -> int:
        """The tokens that were asked for; else the default, cut to what the deadline allows."""
        if request.max_tokens is not None:
            return request.max_tokens
        default, prices = self.shape.default_max_tokens, self._cost.prices()
        work = self._work(prompt_tokens, default)
        allowed = int(limits.end_ns * _TOLD)
        if work.need_ns(prices) <= allowed:
            return default
        return max(1, min(default, (allowed - work.first_ns(prices)) // max(1, prices.step_ns) + 1))


def _too_long(request: Request, prompt_tokens: int, max_tokens: int, slot_tokens: int) -> ContextTooLong:
    return ContextTooLong(
        f"the prompt has {prompt_tokens} tokens and asks for {max_tokens} more; a slot holds {slot_tokens}. "
        "Shorten the prompt or lower max_tokens",
        param=_prompt_param(request),
    )


def _prompt_param(request: Request) -> str:
    return "messages" if request.route is Route.CHAT else "prompt"


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def template_tokens(template: MessageEncoder) -> int:
    """Tokens that the chat template adds around one message; 0 for a model that takes no conversations."""
    try:
        return len(template.encode((Message("user", ""),)))
    except InvalidRequest:
        return 0


def build_guard(contract: Contract, loaded: LoadedModel, admission: Admission, cost: CostTable) -> Guard:
    """The guard of a loaded model, as the contract has it."""
    info, vocabulary, deadline = loaded.engine.describe(), loaded.vocabulary, contract.deadline
    return Guard(
        names=Names(loaded.name, frozenset(contract.model.aliases)),
        shape=Shape(
            slot_tokens=info.slot_tokens,
            default_max_tokens=contract.limits.default_max_tokens,
            vocabulary=vocabulary.size,
            longest_piece_bytes=vocabulary.longest_piece_bytes,
            template_tokens=template_tokens(loaded.template),
            bos_id=vocabulary.bos_id,
            add_bos=vocabulary.add_bos,
            truncate=contract.context.overflow == "truncate",
            drop_duplicates=contract.context.drop_duplicate_turns,
        ),
        admission=admission,
        cost=cost,
        limits=of_contract(deadline.first_token_ms, deadline.per_token_ms, deadline.default_ms),
        freshness=Freshness(contract.freshness.max_age_ms, contract.freshness.on_stale),
        chunk_tokens=info.chunk_tokens,
        encoder=loaded.encoder,
        template=loaded.template,
    )
