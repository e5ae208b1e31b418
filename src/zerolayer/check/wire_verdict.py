"""What a server with the default contract would say to a request, and which of its bytes are to blame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from zerolayer.check.wire_range import ByteRange, Ranges
from zerolayer.errors import ZerolayerError
from zerolayer.wire.anthropic import decode_messages
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.http1 import Fault, Http1Protocol
from zerolayer.wire.http2 import Code, Http2Limits, Http2Protocol
from zerolayer.wire.http2_events import Closed, Message, Refused
from zerolayer.wire.http2_frames import HEADER_BYTES, Kind
from zerolayer.wire.openai import decode_chat, decode_completion
from zerolayer.wire.protobuf_request import RequestDecoder
from zerolayer.wire.responses import decode_response

_HEAD_BYTES: Final = 65_536
_MESSAGES: Final = 16
_LIMITS: Final = BodyLimits()
_DECODERS: Final[dict[bytes, Callable[[bytes], object]]] = {
    b"/v1/chat/completions": lambda body: decode_chat(body, _LIMITS),
    b"/v1/completions": lambda body: decode_completion(body, _LIMITS),
    b"/v1/generate": lambda body: RequestDecoder(_LIMITS, _MESSAGES).decode(body),
    b"/v1/messages": lambda body: decode_messages(body, _LIMITS),
    b"/v1/responses": lambda body: decode_response(body, _LIMITS),
}


def judged_body(path: bytes, body: bytes, ranges: Ranges, end: int) -> Ranges:
    """``ranges`` of a request's body, with the refusal of its route at the range that it names, else at ``end``.

    What is malformed has its fault already; then nothing is added.
    """
    parts = list(ranges)
    refusal = _refusal(path, body)
    if refusal is None or any(part.fault and "ignored" not in part.fault for part in parts):
        yield from parts
        return
    blamed = _blamed(parts, refusal.param or "")
    for index, part in enumerate(parts):
        yield msgspec.structs.replace(part, fault=refusal.message) if index == blamed else part
    if blamed is None:
        yield ByteRange(end, 0, "verdict", f"{refusal.status}", "", refusal.message)


def judged_requests(data: bytes, ranges: Ranges) -> Ranges:
    """``ranges`` of HTTP/1.1, followed by what the protocol of this server would refuse; replies are not judged."""
    replies = False
    for part in ranges:
        replies = replies or part.tag == "status line"
        yield part
    events = [] if replies else Http1Protocol(_HEAD_BYTES, _LIMITS.body_bytes).receive(data)
    if events and isinstance(events[-1], Fault):
        error = events[-1].error
        yield ByteRange(len(data), 0, "verdict", f"{error.status}", "", error.message)


def _refusal(path: bytes, body: bytes) -> ZerolayerError | None:
    decode = _DECODERS.get(path)
    if decode is None:
        return None
    try:
        decode(body)
    except ZerolayerError as error:
        return error
    return None


def _blamed(parts: list[ByteRange], param: str) -> int | None:
    """The range that ``param`` names; of several the one that is no text, else the last, which is what counts."""
    name = param.rpartition(".")[2] if param.startswith("messages.") else param
    named = [index for index, part in enumerate(parts) if name and name in (part.tag, part.tag.partition(" ")[2])]
    odd = [index for index in named if parts[index].value.startswith("0x")]
    found = odd or named
    return found[-1] if found else None


class FrameJudge:
    """A server with the default limits that answers each request at once. ``begin`` is what it has had already.

    A capture knows no time, so what is limited by the second is not judged.
    """

    def __init__(self, begin: bytes) -> None:
        self._core = Http2Protocol(Http2Limits(body_bytes=_LIMITS.body_bytes))
        self._core.receive(begin)
        self._core.take()

    def take(self, frame: bytes) -> str:
        """What the server has against this frame; empty: nothing."""
        core, said = self._core, ""
        for event in core.receive(frame):
            if isinstance(event, Closed):
                return f"a server closes the connection over this ({Code(event.code).name})"
            if isinstance(event, Refused):
                said = event.error.message
            if isinstance(event, Message | Refused):
                core.reply(event.stream_id, 200, (), b"")
        core.new_period()
        reset = _reset_code(core.take())
        return said or (f"a server resets this stream ({reset.name})" if reset else "")


def _reset_code(frames: bytes) -> Code | None:
    """Of the stream that was reset for a fault, if one was."""
    at = 0
    while at < len(frames):
        size, kind = int.from_bytes(frames[at : at + 3], "big"), frames[at + 3]
        code = int.from_bytes(frames[at + HEADER_BYTES : at + HEADER_BYTES + 4], "big")
        if kind == Kind.RST_STREAM and code:
            return Code(code)
        at += HEADER_BYTES + size
    return None
