"""Whole answers kept for equal requests, as clients see it: ``x-zl-cache`` tells, ``cache-control`` opts out."""

from __future__ import annotations

from typing import Final

from zerolayer.front.exchange import Exchange
from zerolayer.guard.answers import Answer, AnswerCache, AnswerKeeper
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.model.engine import Generation
from zerolayer.wire.schema import Request

HIT: Final = (b"x-zl-cache", b"hit")  # nothing was computed
MISS: Final = (b"x-zl-cache", b"miss")  # and the answer is kept, if it is completed


class Keeping:
    """All methods run on the loop. ``default_max_tokens`` is what a request gets that names no number."""

    def __init__(self, cache: AnswerCache, default_max_tokens: int) -> None:
        self.cache = cache
        self._default_max_tokens = default_max_tokens

    def key(self, exchange: Exchange, request: Request) -> bytes | None:
        """The name of the answer; None where none is kept, or the client wants none (RFC 9111 section 5.2.1.5)."""
        if request.answers > 1:
            return None
        if b"no-store" in (exchange.head.get(b"cache-control") or b"").lower():
            return None
        return self.cache.key(request, exchange.identity.salt)

    def find(self, exchange: Exchange, key: bytes) -> Answer | None:
        """The kept answer, unless the client wants a new one (``no-cache``)."""
        if b"no-cache" in (exchange.head.get(b"cache-control") or b"").lower():
            return None
        return self.cache.find(key)

    def keeper(
        self, exchange: Exchange, request: Request, prompt: Prompt, generation: Generation
    ) -> AnswerKeeper | None:
        """What will keep the answer that begins now, if it is to be kept."""
        key = self.key(exchange, request)
        if key is None:
            return None
        begun = Answer((), prompt.ids, prompt.truncated, prompt.duplicates, generation.max_tokens, "")
        least = request.max_tokens or self._default_max_tokens
        return AnswerKeeper(self.cache, key, exchange.identity.salt, begun, least)
