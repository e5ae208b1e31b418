"""Log probabilities in OpenAI's two shapes: a list of objects on the chat route, four parallel lists on completions."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

import msgspec

from zerolayer.wire.schema import Route, TokenLogprob

TokenBytes = Callable[[int], bytes]
"""The bytes that a token id stands for; not always whole characters."""

_LEAST = -9999.0  # OpenAI's word for "as good as impossible"; JSON has no infinity


class _Entry(msgspec.Struct):
    token: str
    bytes: list[int]
    logprob: float


class _ContentEntry(_Entry):
    top_logprobs: list[_Entry]


class _ChatLogprobs(msgspec.Struct):
    content: list[_ContentEntry]
    refusal: None = None


class _CompletionLogprobs(msgspec.Struct):
    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]  # with the chosen token always among them


class LogprobWriter:
    """Renders the ``logprobs`` member of one reply, all at once or piece by piece.

    ``text_offset`` counts characters from the start of the answer.
    """

    __slots__ = ("_characters", "_chat", "_offset")

    def __init__(self, route: Route) -> None:
        self._chat = route is Route.CHAT
        self._offset = 0
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def render(self, logprobs: Sequence[TokenLogprob], token_bytes: TokenBytes, first: int | None = None) -> bytes:
        """The JSON value for these tokens, the next of the reply.

        ``first`` is the first token of a prompt that is shown: it comes before them, and nothing could predict it.
        """
        if self._chat:
            return msgspec.json.encode(self._objects(logprobs, token_bytes))
        lists = _CompletionLogprobs([], [], [], [])
        if first is not None:
            self._append(lists, token_bytes(first), None, None)
        self._extend(lists, logprobs, token_bytes)
        return msgspec.json.encode(lists)

    def _objects(self, logprobs: Sequence[TokenLogprob], token_bytes: TokenBytes) -> _ChatLogprobs:
        content = []
        for chosen in logprobs:
            piece = token_bytes(chosen.token_id)
            top = [_entry(token_bytes(other.token_id), other.logprob) for other in chosen.top]
            content.append(_ContentEntry(_text(piece), list(piece), _finite(chosen.logprob), top))
        return _ChatLogprobs(content)

    def _extend(self, lists: _CompletionLogprobs, logprobs: Sequence[TokenLogprob], token_bytes: TokenBytes) -> None:
        for chosen in logprobs:
            piece = token_bytes(chosen.token_id)
            text = _text(piece)
            # Two tokens may read alike when they are parts of characters: the likelier one, which comes first, stays.
            top: dict[str, float] = {}
            for other in chosen.top:
                top.setdefault(_text(token_bytes(other.token_id)), _finite(other.logprob))
            top.setdefault(text, _finite(chosen.logprob))
            self._append(lists, piece, _finite(chosen.logprob), top)

    def _append(
        self, lists: _CompletionLogprobs, piece: bytes, logprob: float | None, top: dict[str, float] | None
    ) -> None:
        lists.text_offset.append(self._offset)
        lists.token_logprobs.append(logprob)
        lists.tokens.append(_text(piece))
        lists.top_logprobs.append(top)
        self._offset += len(self._characters.decode(piece))


def _entry(piece: bytes, logprob: float) -> _Entry:
    return _Entry(_text(piece), list(piece), _finite(logprob))


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    return max(_LEAST, logprob)  # NaN too: it compares false, so the first argument stays
