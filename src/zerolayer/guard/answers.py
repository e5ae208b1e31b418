"""Whole answers that are kept for an equal request of the same tenant: only where the contract asks for it.

An answer is kept if it does not depend on chance: at temperature 0, or with a seed. The engine gives the same tokens
to such a request whenever it runs, so a kept answer is the one that would be computed. Pure: no clock, no sockets.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from zerolayer.model.engine import SampledToken
from zerolayer.wire.schema import FinishReason, Request, Tier

_TOKEN_BYTES = 200  # of one kept token without log probabilities, measured, rounded up
_ALTERNATIVE_BYTES = 120
_ANSWER_BYTES = 600


class Answer(msgspec.Struct, frozen=True):
    """The tokens of a complete answer, the last with its finish reason or cut by a stop string."""

    tokens: tuple[SampledToken, ...]
    prompt_tokens: int
    max_tokens: int
    program: str


class _Kept(msgspec.Struct):
    answer: Answer
    salt: bytes
    size: int


class AnswerCache:
    """Bounded by ``most_bytes``, of which one salt has ``share`` (0 to 1) at most; the least recently used leaves."""

    def __init__(self, most_bytes: int, share: float = 1.0) -> None:
        self._most = most_bytes
        self._share = share
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._by_salt: dict[bytes, int] = {}
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def key(self, request: Request, salt: bytes) -> bytes | None:
        """The name of what would be answered; None for a request whose answer is not kept.

        Everything of a request counts but what only says how and how soon it is to be delivered.
        """
        sampling = request.sampling
        if not self._most or (sampling.temperature > 0 and sampling.seed is None):
            return None
        asked = msgspec.structs.replace(
            request,
            model="",
            stream=False,
            include_usage=False,
            deadline_ms=None,
            max_age_ms=None,
            event_time_ms=None,
            ingest_time_ms=None,
            ticket="",
            session="",
            tier=Tier.DEFAULT,
        )
        return hashlib.sha256(len(salt).to_bytes(2, "big") + salt + msgspec.msgpack.encode(asked)).digest()

    def find(self, key: bytes) -> Answer | None:
        """The kept answer."""
        kept = self._kept.get(key)
        if kept is None:
            self.misses += 1
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return kept.answer

    def keep(self, key: bytes, salt: bytes, answer: Answer) -> None:
        """Keep a complete answer. One that alone is more than its share is not kept."""
        size = _size(answer.tokens)
        most = int(self._most * self._share) if salt else self._most
        if size > most or key in self._kept:
            return
        while self._by_salt.get(salt, 0) + size > most:
            self._drop(next(name for name, kept in self._kept.items() if kept.salt == salt))
        while self.bytes + size > self._most:
            self._drop(next(iter(self._kept)))
        self._kept[key] = _Kept(answer, salt, size)
        self.bytes += size
        self._by_salt[salt] = self._by_salt.get(salt, 0) + size

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key)
        self.bytes -= kept.size
        left = self._by_salt[kept.salt] - kept.size
        if left:
            self._by_salt[kept.salt] = left
        else:
            del self._by_salt[kept.salt]


class AnswerKeeper:
    """Collects the tokens of one answer, and keeps them once it is complete."""

    def __init__(self, cache: AnswerCache, key: bytes, salt: bytes, request: Request, default_max_tokens: int) -> None:
        self._cache = cache
        self._key = key
        self._salt = salt
        # With no number of its own a request gets what its deadline allows, which depends on the load.
        self._cut = None if request.max_tokens is not None else default_max_tokens
        self._tokens: list[SampledToken] = []

    def take(self, token: SampledToken) -> None:
        """One more token of the answer."""
        self._tokens.append(token)

    def complete(self, reason: FinishReason, prompt_tokens: int, max_tokens: int, program: str) -> None:
        """The answer is complete."""
        if reason is FinishReason.LENGTH and self._cut is not None and max_tokens < self._cut:
            return
        self._cache.keep(self._key, self._salt, Answer(tuple(self._tokens), prompt_tokens, max_tokens, program))


def _size(tokens: Sequence[SampledToken]) -> int:
    alternatives = sum([len(token.logprob.top) + 1 for token in tokens if token.logprob is not None])
    return _ANSWER_BYTES + len(tokens) * _TOKEN_BYTES + alternatives * _ALTERNATIVE_BYTES
