"""The service ``zerolayer.v1.Inference``: ``Generate``, ``CountTokens``, ``Health``, whatever carries the messages."""

from __future__ import annotations

from typing import Final

from zerolayer.errors import VocabularyChanged
from zerolayer.front.count_tokens import TokenCounter
from zerolayer.front.exchange import Exchange
from zerolayer.front.generate import Generator
from zerolayer.front.schema_form import Framing
from zerolayer.guard.guard import Guard
from zerolayer.wire.protobuf_reply import count_tokens_reply, health_reply
from zerolayer.wire.protobuf_request import RequestDecoder

_OTHER: Final = "the token ids are of another vocabulary; fetch /v1/models/{id}/vocabulary again"


class Inference:
    """The methods of the service as actions. All run on the loop.

    ``generator`` answers by ``SchemaAnswers`` of the same framing; ``decoder`` and ``counter`` serve all framings.
    ``etag`` names the vocabulary, for clients that tokenise themselves and say by which (``x-zl-vocabulary``).
    """

    def __init__(
        self,
        generator: Generator,
        framing: Framing,
        decoder: RequestDecoder,
        counter: TokenCounter,
        guard: Guard,
        etag: bytes,
    ) -> None:
        self._etag = etag
        self._generator = generator
        self._framing = framing
        self._decode = decoder.decode
        self._counter = counter
        self._guard = guard

    def generate(self, exchange: Exchange) -> None:
        """``Generate``; over HTTP ``POST /v1/generate``."""
        headers = self._framing.prepare(exchange)
        if (headers.get(b"x-zl-vocabulary") or self._etag) != self._etag:
            exchange.error(VocabularyChanged(_OTHER))
            return
        self._generator.generate(exchange, self._decode, headers)

    def count_tokens(self, exchange: Exchange) -> None:
        """``CountTokens``; over HTTP ``POST /v1/count_tokens``."""
        self._framing.prepare(exchange)
        self._counter.count(exchange, self._decode, self._answer_count)

    def health(self, exchange: Exchange) -> None:
        """``Health``. Over HTTP there is ``GET /readyz``."""
        self._framing.prepare(exchange)
        slots = self._guard.slots
        ready = self._guard.closed is None
        message = health_reply(ready=ready, free_slots=slots.open, next_free_ms=slots.next_open_ms())
        self._framing.reply(exchange, message)

    def _answer_count(self, exchange: Exchange, prompt_tokens: int, slot_tokens: int) -> None:
        self._framing.reply(exchange, count_tokens_reply(prompt_tokens, slot_tokens))
