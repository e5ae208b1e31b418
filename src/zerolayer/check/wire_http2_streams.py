"""What the streams of HTTP/2 carry: heads, bodies, and gRPC's messages, wherever their frames lie."""

from __future__ import annotations

from typing import Final

import msgspec

from zerolayer.check.wire_content import content_ranges
from zerolayer.check.wire_hpack import FieldReader
from zerolayer.check.wire_protobuf import ProtobufDump
from zerolayer.check.wire_range import Body, ByteRange, Ranges, shown
from zerolayer.check.wire_verdict import judged_body
from zerolayer.wire.grpc import PREFIX_BYTES, is_grpc

Piece = tuple[int, bytes]  # where it lies in the capture

_SERVICE: Final = b"/zerolayer.v1.Inference/"
_REQUESTS: Final = {
    _SERVICE + b"Generate": "GenerateRequest",
    _SERVICE + b"CountTokens": "GenerateRequest",
    _SERVICE + b"Health": "HealthRequest",
}
_GENERATE: Final = b"/v1/generate"  # which has the limits of the method


class _Stream(msgspec.Struct):
    """One half of it: ``path`` of a request, ``status`` of a reply."""

    path: bytes = b""
    status: bytes = b""
    content_type: bytes = b""
    pieces: list[Piece] = []
    size: int = 0
    wanted: int = PREFIX_BYTES  # bytes of ``pieces`` that a message of gRPC needs


class Http2Streams:
    """Of one half of a connection."""

    def __init__(self) -> None:
        self._reader = FieldReader()
        self._streams: dict[int, _Stream] = {}

    def head(self, stream_id: int, block: list[Piece]) -> Ranges:
        """A complete header block: the first of a stream says what it carries."""
        fields, parts = self._reader.ranges(Body(block), 1)
        yield from parts
        known = dict(reversed(fields))
        status = known.get(b":status", b"")
        if b":path" in known or (status and not status.startswith(b"1")):
            path = known.get(b":path", b"").partition(b"?")[0]
            self._streams[stream_id] = _Stream(path, status, known.get(b"content-type", b""), [])

    def data(self, stream_id: int, offset: int, payload: bytes) -> Ranges:
        """A piece of the body; of gRPC's messages those that it completes."""
        stream = self._streams.setdefault(stream_id, _Stream(pieces=[]))
        if payload:
            stream.pieces.append((offset, payload))
            stream.size += len(payload)
        while is_grpc(stream.content_type) and stream.size >= stream.wanted:
            whole = Body(stream.pieces)
            end = PREFIX_BYTES + int.from_bytes(whole.data[1:PREFIX_BYTES], "big")
            stream.wanted = end
            if stream.size < end:
                return
            yield from _message(stream, whole, end)
            rest = whole.data[end:]
            stream.pieces = [(whole.offset(end), rest)] if rest else []
            stream.size, stream.wanted = len(rest), PREFIX_BYTES

    def end(self, stream_id: int) -> Ranges:
        """The half is complete."""
        stream = self._streams.pop(stream_id, None)
        if stream is None or not stream.pieces:
            return
        body = Body(stream.pieces)
        if is_grpc(stream.content_type):
            wrong = f"the call ends within a message: {stream.wanted - stream.size} bytes are missing"
            yield ByteRange(body.offset(0), stream.size, "message", "grpc", shown(body.data), wrong, 1)
        else:
            yield from content_ranges(stream.path, stream.status, stream.content_type, body)

    def unfinished(self) -> Ranges:
        """What the capture has of streams that it does not end."""
        for stream_id in list(self._streams):
            yield from self.end(stream_id)


def _message(stream: _Stream, body: Body, end: int) -> Ranges:
    flag = body.data[0]
    fault = "" if not flag else "compressed: this server takes no such message" if flag == 1 else "must be 0 or 1"
    yield ByteRange(body.offset(0), PREFIX_BYTES, "message", "grpc", f"{end - PREFIX_BYTES} bytes", fault, 1)
    name = "GenerateReply" if stream.status else _REQUESTS.get(stream.path, "")
    if flag or end == PREFIX_BYTES:
        return
    parts = list(ProtobufDump(body, name).ranges(PREFIX_BYTES, end, 2)) if name else []
    message = body.data[PREFIX_BYTES:end]
    if not name or (stream.status and any(part.fault for part in parts)):  # a reply does not say whose it is
        yield ByteRange(body.offset(PREFIX_BYTES), len(message), "", "bytes", shown(message), depth=2)
    elif name == "GenerateRequest":
        yield from judged_body(_GENERATE, message, iter(parts), body.offset(end))
    else:
        yield from parts
