"""Streamed replies in Anthropic's shape: named server-sent events around constant bytes (WHATWG HTML section 9.2).

``message_start``, then each block between its start and its stop, then ``message_delta`` and ``message_stop``. Stock
clients fail on a delta outside of its block, so blocks are opened and closed here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.wire.anthropic_reply import error_body, message_id, usage_member
from zerolayer.wire.schema import Account, CallDelta, Usage

_PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_FIRST: Final = 1  # the first token leaves in the same write as the start

_encode = msgspec.json.Encoder().encode


class _Frame(msgspec.Struct, frozen=True):
    """What is constant in the events of the block with one index."""

    text_start: bytes
    tool_start: bytes  # up to the tool's id
    text: bytes  # up to the text
    json: bytes  # up to the piece of JSON
    stop: bytes


@lru_cache(128)
def _frame(index: int) -> _Frame:
    start = b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":' % index
    delta = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":' % index
    return _Frame(
        start + b'{"type":"text","text":""}}\n\n',
        start + b'{"type":"tool_use","id":',
        delta + b'{"type":"text_delta","text":',
        delta + b'{"type":"input_json_delta","partial_json":',
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index,
    )


class MessageWriter:
    """One streamed reply, event by event: ``open``, then ``text`` and ``calls``, then ``finish``; or ``error`` instead.

    The events are the content of the body; HTTP/1.1 wraps them into chunks. After ``error`` the connection must be cut
    without the protocol's clean end.
    """

    __slots__ = ("_closing", "_in_text", "_index", "_json", "_request_id", "_start", "_text")

    def __init__(self, request_id: str, model: str, input_tokens: int) -> None:
        self._request_id = request_id
        self._start = (
            b'event: message_start\ndata: {"type":"message_start","message":{"id":%b,"type":"message",'
            b'"role":"assistant","model":%b,"content":[],"stop_reason":null,"stop_sequence":null,"usage":%b}}\n\n'
            % (_encode(message_id(request_id)), _encode(model), usage_member(Usage(input_tokens, _FIRST)))
        )
        self._index = -1
        self._closing = b""  # what ends the open block
        self._text = self._json = b""  # what a delta of the open block begins with
        self._in_text = False

    def open(self) -> bytes:
        """``message_start``."""
        return self._start

    def text(self, text: str) -> bytes:
        """More text, in the open block of text or in a new one; nothing when there is none."""
        if not text:
            return b""
        if self._in_text:
            return self._text + _encode(text) + b"}}\n\n"
        frame, before = self._next()
        self._in_text = True
        return b"".join((before, frame.text_start, self._ping(), frame.text, _encode(text), b"}}\n\n"))

    def calls(self, pieces: Sequence[CallDelta]) -> bytes:
        """Pieces of tool calls. The first of each call opens a block."""
        events = []
        for piece in pieces:
            if piece.name:
                frame, before = self._next()
                self._in_text = False
                names = b'%b,"name":%b,"input":{}}}\n\n' % (_encode(piece.id), _encode(piece.name))
                events += [before, frame.tool_start, names, self._ping()]
            if piece.arguments:
                events += [self._json, _encode(piece.arguments), b"}}\n\n"]
        return b"".join(events)

    def finish(self, stop_reason: str, stop_sequence: str | None, usage: Usage, account: Account) -> bytes:
        """The open block's end, ``message_delta`` with the account in its member ``zerolayer``, ``message_stop``."""
        return (
            b'%bevent: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":%b,"stop_sequence":%b},'
            b'"usage":%b,"zerolayer":%b}\n\n%b'
            % (
                self._closing,
                _encode(stop_reason),
                _encode(stop_sequence),
                usage_member(usage),
                _encode(account),
                _STOP,
            )
        )

    def error(self, error: ZerolayerError) -> bytes:
        """What went wrong after the 200 was sent."""
        return b"event: error\ndata: " + error_body(error, self._request_id) + b"\n\n"

    def _next(self) -> tuple[_Frame, bytes]:
        """The next block's frame, and what ends the block before it."""
        before, self._index = self._closing, self._index + 1
        frame = _frame(self._index)
        self._closing, self._text, self._json = frame.stop, frame.text, frame.json
        return frame, before

    def _ping(self) -> bytes:
        """Once, after the first block's start, where Anthropic has it."""
        return b"" if self._index else _PING
