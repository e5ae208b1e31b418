"""Streamed replies in OpenAI's shape: server-sent events around constant bytes (WHATWG HTML section 9.2).

Everything that is the same in all events of a reply is rendered once: a token costs an escape and a concatenation.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.wire.openai_logprobs import LogprobWriter, TokenBytes
from zerolayer.wire.openai_reply import FINGERPRINT, error_body, reply_id, usage_member
from zerolayer.wire.schema import Account, CallDelta, FinishReason, Route, TokenLogprob, Usage

_END = b"\n\n"
_DONE = b"data: [DONE]\n\n"
_OBJECTS = {Route.CHAT: b"chat.completion.chunk", Route.COMPLETIONS: b"text_completion"}

# Around the text of a choice, by route: before it, and after it up to the value of "logprobs".
_BEFORE_TEXT = {
    Route.CHAT: b'"choices":[{"index":%d,"delta":{"content":',
    Route.COMPLETIONS: b'"choices":[{"index":%d,"text":',
}
_AFTER_TEXT = {Route.CHAT: b'},"logprobs":', Route.COMPLETIONS: b',"logprobs":'}
_ROLE = b'"choices":[{"index":%d,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,'
_NO_TEXT = {
    Route.CHAT: b'"choices":[{"index":%d,"delta":{},"logprobs":null,',
    Route.COMPLETIONS: b'"choices":[{"index":%d,"text":"","logprobs":null,',
}

# Around the piece of a call: the first one of a call, and its others.
_BEFORE_CALL = b'"choices":[{"index":%d,"delta":{"tool_calls":['
_FIRST_PIECE = b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}]},"logprobs":null'
_OTHER_PIECE = b'{"index":%d,"function":{"arguments":%b}}]},"logprobs":null'

_COUNTED = b',"finish_reason":null}],"usage":%b}\n\n'

_encode = msgspec.json.Encoder().encode


class StreamWriter:
    """One streamed reply, event by event: ``open``, ``delta``, ``finish``, ``usage``, ``done``; or ``error`` instead.

    ``request_id`` and ``model`` go into every event, ``created`` is in Unix seconds, ``index`` numbers the answer. The
    events are the content of the body; HTTP/1.1 wraps them into chunks. After ``error`` the connection must be cut
    without the protocol's clean end. Events with a ``usage`` tell the counts so far.
    """

    __slots__ = (
        "_after_text",
        "_call_prefix",
        "_finish_prefix",
        "_include_usage",
        "_logprobs",
        "_no_usage",
        "_plain_suffix",
        "_prefix",
        "_start",
        "_suffix",
        "_text_prefix",
    )

    def __init__(
        self,
        route: Route,
        request_id: str,
        created: int,
        model: str,
        include_usage: bool,
        fingerprint: str = FINGERPRINT,
        index: int = 0,
    ) -> None:
        self._prefix = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"system_fingerprint":%b,' % (
            _encode(reply_id(route, request_id)),
            _OBJECTS[route],
            created,
            _encode(model),
            _encode(fingerprint),
        )
        self._include_usage = include_usage
        self._no_usage = no_usage = b',"usage":null' if include_usage else b""
        self._suffix = b',"finish_reason":null}]%b}\n\n' % no_usage
        self._plain_suffix = _AFTER_TEXT[route] + b"null" + self._suffix
        self._text_prefix = self._prefix + _BEFORE_TEXT[route] % index
        self._call_prefix = self._prefix + _BEFORE_CALL % index
        self._finish_prefix = self._prefix + _NO_TEXT[route] % index
        self._start = self._prefix + _ROLE % index + self._suffix[1:] if route is Route.CHAT else b""
        self._after_text = _AFTER_TEXT[route]
        self._logprobs = LogprobWriter(route)

    def open(self) -> bytes:
        """The first event of a chat, which names the role; nothing on the completions route."""
        return self._start

    def echo(
        self, text: str, logprobs: Sequence[TokenLogprob] = (), token_bytes: TokenBytes | None = None, first: int = -1
    ) -> bytes:
        """The prompt, and where ``token_bytes`` are given how likely its tokens were, but for the ``first``."""
        if token_bytes is None:
            return self.delta(text)
        member = self._logprobs.render(logprobs, token_bytes, first)
        return b"".join((self._text_prefix, _encode(text), self._after_text, member, self._suffix))

    def delta(
        self,
        text: str,
        logprobs: Sequence[TokenLogprob] = (),
        token_bytes: TokenBytes | None = None,
        usage: Usage | None = None,
    ) -> bytes:
        """More text, with the log probabilities of its tokens; nothing when there is neither.

        ``logprobs`` are shown only with ``token_bytes``.
        """
        suffix = self._suffix if usage is None else _COUNTED % usage_member(usage)
        if logprobs and token_bytes is not None:
            member = self._logprobs.render(logprobs, token_bytes)
            return b"".join((self._text_prefix, _encode(text), self._after_text, member, suffix))
        if not text:
            return b""
        if usage is not None:
            return b"".join((self._text_prefix, _encode(text), self._after_text, b"null", suffix))
        return self.plain_delta(text)

    def plain_delta(self, text: str) -> bytes:
        """``delta`` of text alone, which nearly every token is."""
        return self._text_prefix + _encode(text) + self._plain_suffix

    @property
    def around_text(self) -> tuple[bytes, bytes]:
        """What stands before and after ``text_member`` in a ``plain_delta``."""
        return self._text_prefix, self._plain_suffix

    def calls(self, pieces: Sequence[CallDelta], usage: Usage | None = None) -> bytes:
        """Pieces of tool calls, an event each; nothing for none."""
        suffix = self._suffix if usage is None else _COUNTED % usage_member(usage)
        return b"".join([self._call_prefix + _piece(piece) + suffix for piece in pieces])

    def finish(self, reason: FinishReason, account: Account, usage: Usage | None = None) -> bytes:
        """The event that carries ``finish_reason``, and the account of the request in its member ``zerolayer``."""
        return b'%b"finish_reason":%b}]%b,"zerolayer":%b}\n\n' % (
            self._finish_prefix,
            _encode(reason),
            self._no_usage if usage is None else b',"usage":' + usage_member(usage),
            _encode(account),
        )

    def usage(self, usage: Usage) -> bytes:
        """The event with an empty ``choices`` list; nothing unless the request asked for it."""
        if not self._include_usage:
            return b""
        return b'%b"choices":[],"usage":%b}\n\n' % (self._prefix, usage_member(usage))

    def done(self) -> bytes:
        """The end of a complete stream."""
        return _DONE

    def error(self, error: ZerolayerError) -> bytes:
        """What went wrong after the 200 was sent."""
        return error_event(error)


def text_member(text: str) -> bytes:
    """The text of a ``plain_delta``; nothing for none."""
    return _encode(text) if text else b""


def _piece(piece: CallDelta) -> bytes:
    if piece.name:
        names = _encode(piece.id), _encode(piece.name)
        return _FIRST_PIECE % (piece.index, *names, _encode(piece.arguments))
    return _OTHER_PIECE % (piece.index, _encode(piece.arguments))


def error_event(error: ZerolayerError) -> bytes:
    """What went wrong after the 200 was sent; nobody takes the stream for complete."""
    return b"data: " + error_body(error) + _END
