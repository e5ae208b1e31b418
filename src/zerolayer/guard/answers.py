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
_ID_BYTES = 36
_ANSWER_BYTES = 600


class Answer(msgspec.Struct, frozen=True):
    """The tokens of a complete answer, and what they were an answer to: the prompt as the model read it."""

    tokens: tuple[SampledToken, ...]
    prompt_ids: Sequence[int]
    truncated: int  # messages of the request that are not in it
    duplicates: int
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
        size = _size(answer)
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
    """Collects the tokens of one answer, and keeps them once it is complete. ``begun`` is it without tokens.

    ``least``: an answer that was cut by a lower ``max_tokens`` is not kept. Where the request names none, it gets what
    its deadline allows, which depends on the load.
    """

    def __init__(self, cache: AnswerCache, key: bytes, salt: bytes, begun: Answer, least: int) -> None:
        self._cache = cache
        self._key = key
        self._salt = salt
        self._begun = begun
        self._least = least
        self._tokens: list[SampledToken] = []

    def take(self, token: SampledToken) -> None:
        """One more token of the answer."""
        self._tokens.append(token)

    def complete(self, reason: FinishReason, program: str) -> None:
        """The answer is complete."""
        begun = self._begun
        if reason is FinishReason.LENGTH and begun.max_tokens < self._least:
            return
        answer = msgspec.structs.replace(begun, tokens=tuple(self._tokens), program=program)
        self._cache.keep(self._key, self._salt, answer)


def _size(answer: Answer) -> int:
    tokens = answer.tokens
    alternatives = sum([len(token.logprob.top) + 1 for token in tokens if token.logprob is not None])
    prompt = len(answer.prompt_ids) * _ID_BYTES
    return _ANSWER_BYTES + prompt + len(tokens) * _TOKEN_BYTES + alternatives * _ALTERNATIVE_BYTES
