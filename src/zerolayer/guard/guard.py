"""Joins the decisions between a decoded request and a slot. Decides only: no sockets, no threads, no waiting.

The order matters (a flood must be refused before it costs anything): model name, then what bytes alone can tell, then
a slot on the upper bound of the length, and only for who holds a slot the tokeniser; then the true length tightens
the reservation or gives it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from zerolayer.errors import ContextTooLong, Infeasible, InvalidRequest, ModelNotFound, SlotsBusy, Unavailable
from zerolayer.guard.deadline import Refusal, SlotTable
from zerolayer.guard.overflow import newest_turns, without_repeats
from zerolayer.model.engine import Generation
from zerolayer.wire.schema import Message, Request, Route

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


class Reservation(msgspec.Struct, frozen=True):
    """A claimed slot, held on the upper bound until ``confirm`` or ``release``."""

    slot: int
    long: bool  # tokenise off the loop


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
        slots: SlotTable,
        encoder: TextEncoder,
        template: MessageEncoder,
        predict_ns: Callable[[int, int], int],
        refusal: str,
    ) -> None:
        self.names = names
        self.shape = shape
        self.slots = slots
        self._encoder = encoder
        self._template = template
        self._predict_ns = predict_ns
        self._refusal = refusal  # what people read when all slots are busy; "{ms}" is the wait
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

    def reserve(self, request: Request) -> Reservation:
        """Claim a slot on the upper bound of the request's length. Costs the same whatever the text; never tokenises.

        Raises ``Unavailable`` 503, ``ModelNotFound`` 404, ``Infeasible`` 422, ``SlotsBusy`` 429.
        """
        text_bytes, upper = self._admissible(request)
        claimed = self.slots.claim(self._predict_ns(upper, min(self._wanted(request), self.shape.slot_tokens)))
        if isinstance(claimed, Refusal):
            wait = claimed.retry_after_ms
            raise SlotsBusy(self._refusal.replace("{ms}", str(wait)), retry_after_ms=wait)
        return Reservation(claimed, text_bytes > LONG_TEXT_BYTES)

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
            answer = min(self._wanted(request), most)
            cut = newest_turns(messages, self._template.encode, shape.slot_tokens - answer)
            if cut is not None:
                return Prompt(cut.ids, cut.dropped, duplicates)
        return Prompt(ids, duplicates=duplicates)

    def confirm(self, reservation: Reservation, request: Request, ids: Sequence[int]) -> Generation:
        """Tighten the reservation to the true length, or release it and raise the request's own 4xx."""
        try:
            max_tokens = self._fit(request, len(ids))
        except InvalidRequest:
            self.slots.release(reservation.slot)
            raise
        self.slots.tighten(reservation.slot, self._predict_ns(len(ids), max_tokens))
        return Generation(ids, request.sampling, max_tokens, request.ignore_eos)

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back that the engine never saw."""
        self.slots.release(reservation.slot)

    def _admissible(self, request: Request) -> tuple[int, int]:
        """``_bounds``, if the request may be looked at at all."""
        if self.closed is not None:
            raise self.closed
        if not self.names.known(request.model):
            raise ModelNotFound(
                f"the model does not exist here; this service serves {self.names.served!r}", param="model"
            )
        return self._bounds(request)

    def _bounds(self, request: Request) -> tuple[int, int]:
        """Bytes of text, and the upper bound of prompt tokens: no token stands for less than a byte."""
        shape = self.shape
        if request.route is Route.CHAT:
            text_bytes = sum(_utf8_bytes(message.content) for message in request.messages)
            upper = text_bytes + shape.template_tokens * (len(request.messages) + 1)
        elif isinstance(request.prompt, str):
            text_bytes = upper = _utf8_bytes(request.prompt)
        else:
            text_bytes, upper = 0, len(request.prompt)
            if upper > shape.slot_tokens:
                raise _too_long(request, upper, self._wanted(request), shape.slot_tokens)
        lower = text_bytes // shape.longest_piece_bytes
        if lower > shape.slot_tokens and not (shape.truncate and request.route is Route.CHAT):
            raise Infeasible(
                f"the text is at least {lower} tokens long; a slot holds {shape.slot_tokens}. Shorten it",
                param=_prompt_param(request),
            )
        return text_bytes, min(upper + 1, shape.slot_tokens)

    def _fit(self, request: Request, prompt_tokens: int) -> int:
        """The ``max_tokens`` that is applied: a default that does not fit is cut, a chosen one is refused."""
        if prompt_tokens == 0:
            raise InvalidRequest("the prompt is empty; send at least one token", param="prompt")
        wanted = self._wanted(request)
        if not self._fits(request, prompt_tokens):
            raise _too_long(request, prompt_tokens, wanted, self.shape.slot_tokens)
        return min(wanted, self.shape.slot_tokens - prompt_tokens)

    def _fits(self, request: Request, prompt_tokens: int) -> bool:
        return prompt_tokens + (request.max_tokens or 1) <= self.shape.slot_tokens

    def _messages(self, request: Request) -> Sequence[Message]:
        return without_repeats(request.messages) if self.shape.drop_duplicates else request.messages

    def _wanted(self, request: Request) -> int:
        return self.shape.default_max_tokens if request.max_tokens is None else request.max_tokens


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
