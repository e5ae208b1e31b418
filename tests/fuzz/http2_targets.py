"""What the fuzzer calls of HTTP/2's short cut, where requests that came whole are found natively."""

from __future__ import annotations

from zerolayer.wire.http2 import Http2Limits, Http2Protocol
from zerolayer.wire.http2_events import Message, Opened
from zerolayer.wire.http2_frames import END_HEADERS, END_STREAM, PREFACE, Kind, frame, settings

_LIMITS = Http2Limits(streams=8, head_bytes=2048, body_bytes=4096, held_bytes=1 << 17)
_PATH = b"\x86\x84\x01\x09localhost"
_BLOCKS = (b"\x82" + _PATH, b"\x83" + _PATH)  # GET and POST


def whole(data: bytes) -> None:
    """Requests that came whole are what their frames make of them, one by one."""
    quick, slow = _acquainted(), _acquainted()
    found, expected = quick.whole(data), slow.receive(data)
    if found is None:
        events = quick.receive(data)
    else:
        events = [event for id_, head, body in found for event in (Opened(id_, head), Message(id_, body))]
    assert events == expected or repr(events) == repr(expected)  # no two errors are equal
    assert (quick.take(), quick.streams, quick.partial) == (slow.take(), slow.streams, slow.partial)


def _acquainted() -> Http2Protocol:
    """It has had requests whose heads it knows again."""
    protocol = Http2Protocol(_LIMITS)
    protocol.receive(PREFACE + settings({}))
    for stream_id, block in zip((1, 3), _BLOCKS, strict=True):
        protocol.receive(frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream_id, block))
    protocol.take()
    return protocol
