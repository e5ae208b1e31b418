"""What a server with the default contract would say to a request, and which of its bytes are to blame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from zerolayer.check.wire_range import ByteRange, Ranges
from zerolayer.errors import ZerolayerError
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.http1 import Fault, Http1Protocol
from zerolayer.wire.openai import decode_chat, decode_completion
from zerolayer.wire.protobuf_request import RequestDecoder

_HEAD_BYTES: Final = 65_536
_MESSAGES: Final = 16
_LIMITS: Final = BodyLimits()
_DECODERS: Final[dict[bytes, Callable[[bytes], object]]] = {
    b"/v1/chat/completions": lambda body: decode_chat(body, _LIMITS),
    b"/v1/completions": lambda body: decode_completion(body, _LIMITS),
    b"/v1/generate": lambda body: RequestDecoder(_LIMITS, _MESSAGES).decode(body),
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
