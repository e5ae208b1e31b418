"""HTTP/2 frame by frame (RFC 9113): what each is, and through ``wire_http2_streams`` what they carry together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zerolayer.check.wire_http2_streams import Http2Streams, Piece
from zerolayer.check.wire_range import ByteRange, Ranges, shown
from zerolayer.check.wire_verdict import FrameJudge
from zerolayer.wire.http2_frames import PREFACE

__all__ = ["PREFACE", "Http2Dump", "looks_like_frames"]

_HEADER: Final = 9
_TYPES: Final = (
    "DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE",
    "CONTINUATION",
)  # fmt: skip
_FLAGS: Final = {
    "DATA": {1: "END_STREAM", 8: "PADDED"},
    "HEADERS": {1: "END_STREAM", 4: "END_HEADERS", 8: "PADDED", 32: "PRIORITY"},
    "SETTINGS": {1: "ACK"},
    "PING": {1: "ACK"},
    "CONTINUATION": {4: "END_HEADERS"},
    "PUSH_PROMISE": {4: "END_HEADERS", 8: "PADDED"},
}
_SETTINGS: Final = {
    1: "HEADER_TABLE_SIZE",
    2: "ENABLE_PUSH",
    3: "MAX_CONCURRENT_STREAMS",
    4: "INITIAL_WINDOW_SIZE",
    5: "MAX_FRAME_SIZE",
    6: "MAX_HEADER_LIST_SIZE",
}
_ERRORS: Final = (
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
)  # fmt: skip
_ON_STREAM: Final = frozenset({"DATA", "HEADERS", "PRIORITY", "RST_STREAM", "PUSH_PROMISE", "CONTINUATION"})
_ON_CONNECTION: Final = frozenset({"SETTINGS", "PING", "GOAWAY"})
_LEAST: Final = {"RST_STREAM": 4, "GOAWAY": 8, "WINDOW_UPDATE": 4}  # bytes, below which there is nothing to name
_SIZES: Final = {"PRIORITY": 5, "RST_STREAM": 4, "PING": 8, "WINDOW_UPDATE": 4}
_FRAMED: Final = frozenset({"DATA", "HEADERS", "CONTINUATION", "PUSH_PROMISE"})
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 1, 4, 8, 32
_FRAME_SIZE: Final = 16_384  # until a SETTINGS frame of the other side says more


def looks_like_frames(data: bytes) -> bool:
    """Whether ``data`` begins as a server's half of a connection does: with a SETTINGS frame."""
    return len(data) >= _HEADER and data[3] == 4 and data[5:9] == bytes(4) and int.from_bytes(data[:3], "big") < 256


class Http2Dump:
    """One half of a connection: a client's, which begins with the preface, or a server's."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._streams = Http2Streams()
        self._block: list[Piece] | None = None  # of a head that goes on in the next frame
        self._ends = False  # whether the stream ends with it
        self._judge = FrameJudge(PREFACE) if data.startswith(PREFACE) else None

    def ranges(self) -> Ranges:
        """Every frame, and what the streams carry."""
        data, at = self._data, 0
        if data.startswith(PREFACE[:3]):
            fault = "" if data.startswith(PREFACE) else "not the connection preface"
            yield ByteRange(0, min(len(PREFACE), len(data)), "preface", "http2", "", fault)
            at = len(PREFACE)
        while at < len(data):
            left = len(data) - at - _HEADER
            if left < 0:
                yield ByteRange(
                    at, len(data) - at, "frame", "http2", shown(data[at:]), "the frame header is incomplete"
                )
                break
            size = int.from_bytes(data[at : at + 3], "big")
            name = _TYPES[data[at + 3]] if data[at + 3] < len(_TYPES) else f"type {data[at + 3]}"
            flags = data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + _HEADER], "big") & 0x7FFF_FFFF
            start, end = at + _HEADER, at + _HEADER + size
            fault = _fault(name, size, stream, flags, left)
            verdict = self._judge.take(data[at:end]) if self._judge and size <= left else ""
            value = f"stream {stream}, {size} bytes{_flags(name, flags)}"
            yield ByteRange(at, _HEADER, name, "frame", value, fault or verdict)
            yield from self._payload(name, flags, stream, data[start:end], start, whole=size <= left)
            at = end
        yield from self._streams.unfinished()

    def _payload(self, name: str, flags: int, stream: int, payload: bytes, start: int, *, whole: bool) -> Ranges:
        if name in _FRAMED and whole:
            inner, parts = _unwrapped(name, flags, payload, start)
            yield from parts
            if inner is not None:
                ended = bool(flags & _END_STREAM) and name in ("DATA", "HEADERS")
                if name == "DATA":
                    yield from self._data_of(stream, inner, ended)
                else:
                    yield from self._fields_of(name, flags, stream, inner, ended)
            return
        if payload:
            read = _PAYLOADS.get(name, _other) if len(payload) >= _LEAST.get(name, 0) else _other
            yield from read(payload, start)
        if name == "RST_STREAM":
            yield from self._streams.end(stream)

    def _data_of(self, stream: int, inner: Piece, ended: bool) -> Ranges:
        offset, content = inner
        if content:
            yield ByteRange(offset, len(content), "data", "bytes", f"{len(content)} bytes", depth=1)
        yield from self._streams.data(stream, offset, content)
        if ended:
            yield from self._streams.end(stream)

    def _fields_of(self, name: str, flags: int, stream: int, inner: Piece, ended: bool) -> Ranges:
        if name != "CONTINUATION":
            self._block, self._ends = [], ended
        if self._block is None:
            return  # it goes on with nothing
        self._block.append(inner)
        if flags & _END_HEADERS:
            block, self._block = self._block, None
            yield from self._streams.head(stream, block)
            if self._ends:
                yield from self._streams.end(stream)


def _unwrapped(name: str, flags: int, payload: bytes, start: int) -> tuple[Piece | None, list[ByteRange]]:
    """What a frame holds beside padding, priority and promised stream, and these; None where they do not fit in it."""
    padded = bool(flags & _PADDED) and name != "CONTINUATION"
    sizes = (padded, 4 * (name == "PUSH_PROMISE"), 5 * (name == "HEADERS" and bool(flags & _PRIORITY)))
    inner, padding = sum(sizes), payload[0] if padded and payload else 0
    if inner + padding > len(payload):
        fault = "too short for its fields (FRAME_SIZE_ERROR)"
        if inner <= len(payload):
            fault = f"{padding} bytes of padding do not fit (PROTOCOL_ERROR)"
        return None, [ByteRange(start, len(payload), "payload", "bytes", shown(payload), fault, 1)]
    parts: list[ByteRange] = []
    values = (f"{padding} bytes", str(_word(payload, padded)), f"after stream {_word(payload, padded)}")
    at = 0
    for size, tag, kind, value in zip(sizes, _BEFORE, ("uint8", "uint31", "priority"), values, strict=True):
        if size:
            parts.append(ByteRange(start + at, size, tag, kind, value, "", 1))
            at += size
    end = len(payload) - padding
    if padding:
        parts.append(ByteRange(start + end, padding, "padding", "bytes", "", "", 1))
    return (start + at, payload[at:end]), parts


_BEFORE: Final = ("padding length", "promised stream", "priority")


def _word(payload: bytes, at: int) -> int:
    return int.from_bytes(payload[at : at + 4], "big") & 0x7FFF_FFFF


def _flags(name: str, flags: int) -> str:
    known = _FLAGS.get(name, {})
    names = [known.get(1 << bit, f"0x{1 << bit:02x}") for bit in range(8) if flags >> bit & 1]
    return ", " + " ".join(names) if names else ""


def _fault(name: str, size: int, stream: int, flags: int, left: int) -> str:
    if name in _ON_STREAM and not stream:
        return "this frame needs a stream (PROTOCOL_ERROR)"
    if name in _ON_CONNECTION and stream:
        return "this frame belongs to stream 0 (PROTOCOL_ERROR)"
    wrong_settings = name == "SETTINGS" and (size % 6 or (flags & 1 and size))
    if size != _SIZES.get(name, size) or wrong_settings or (name == "GOAWAY" and size < 8):
        return "a frame of this type cannot have this size (FRAME_SIZE_ERROR)"
    if size > left:
        return f"the frame ends {size - left} bytes early"
    if size > _FRAME_SIZE:
        return f"more than {_FRAME_SIZE} bytes need a SETTINGS_MAX_FRAME_SIZE of the other side"
    return ""


def _settings(payload: bytes, start: int) -> Ranges:
    for at in range(0, len(payload) - 5, 6):
        number = int.from_bytes(payload[at : at + 2], "big")
        value = int.from_bytes(payload[at + 2 : at + 6], "big")
        yield ByteRange(start + at, 6, _SETTINGS.get(number, f"setting {number}"), "setting", str(value), depth=1)


def _error(payload: bytes, start: int) -> Ranges:
    number = int.from_bytes(payload[:4], "big")
    yield ByteRange(start, 4, "error", "uint32", _ERRORS[number] if number < len(_ERRORS) else str(number), depth=1)


def _goaway(payload: bytes, start: int) -> Ranges:
    yield ByteRange(start, 4, "last stream", "uint31", str(int.from_bytes(payload[:4], "big") & 0x7FFF_FFFF), depth=1)
    yield from _error(payload[4:8], start + 4)
    if len(payload) > 8:
        yield ByteRange(start + 8, len(payload) - 8, "debug", "bytes", shown(payload[8:]), depth=1)


def _window(payload: bytes, start: int) -> Ranges:
    increment = int.from_bytes(payload[:4], "big") & 0x7FFF_FFFF
    fault = "" if increment else "an increment of 0 (PROTOCOL_ERROR)"
    yield ByteRange(start, 4, "increment", "uint31", str(increment), fault, 1)


def _other(payload: bytes, start: int) -> Ranges:
    yield ByteRange(start, len(payload), "payload", "bytes", shown(payload), depth=1)


_PAYLOADS: Final[dict[str, Callable[[bytes, int], Ranges]]] = {
    "SETTINGS": _settings,
    "RST_STREAM": _error,
    "GOAWAY": _goaway,
    "WINDOW_UPDATE": _window,
}
