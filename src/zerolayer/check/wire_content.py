"""What a body holds, told by its path and its type: JSON, events, messages of the schema."""

from __future__ import annotations

from typing import Final

from zerolayer.check.wire_json import JsonDump, event_ranges
from zerolayer.check.wire_protobuf import ProtobufDump
from zerolayer.check.wire_range import Body, ByteRange, Ranges, shown
from zerolayer.check.wire_verdict import judged_body

_PROTOBUF: Final = b"application/x-protobuf"
# (path, whether it is a request) -> message; any other body of the type is taken for that of /v1/generate.
_MESSAGES: Final = {
    (b"/v1/count_tokens", False): "CountTokensReply",
}


def media_of(content_type: bytes) -> bytes:
    """The type without its parameters, lower-case."""
    return content_type.partition(b";")[0].strip().lower()


def content_ranges(path: bytes, status: bytes, content_type: bytes, body: Body, depth: int = 1) -> Ranges:
    """``body`` of a message to ``path``; ``status`` is empty for a request, which is held against its limits too."""
    if not body.data:
        return
    media = media_of(content_type)
    if media == b"application/json":
        parts = JsonDump(body, 0, len(body.data), depth).ranges()
    elif media == b"text/event-stream":
        parts = event_ranges(body, depth)
    elif media == _PROTOBUF:
        parts = _messages(path, status, content_type, body, depth)
    else:
        yield ByteRange(body.offset(0), len(body.data), "content", "bytes", shown(body.data), "", depth)
        return
    yield from parts if status else judged_body(path, body.data, parts, body.offset(len(body.data)))


def _messages(path: bytes, status: bytes, content_type: bytes, body: Body, depth: int) -> Ranges:
    message = _MESSAGES.get((path, not status), "GenerateReply" if status else "GenerateRequest")
    dump = ProtobufDump(body, "Error" if status >= b"400" else message)
    if b"delimited=true" in content_type:
        return dump.delimited(depth)
    return dump.ranges(0, len(body.data), depth)
