"""Frames of HTTP/2 as constants and bytes (RFC 9113 sections 4, 6, 7)."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES: Final = 9
FRAME_BYTES: Final = 16_384  # the largest payload that is taken, and sent: the least that everybody must take
WINDOW: Final = 65_535  # of a connection, and of a stream before SETTINGS say otherwise
LARGEST_WINDOW: Final = (1 << 31) - 1
TABLE_BYTES: Final = 4096  # of a peer's header table, before SETTINGS say otherwise
NO_TABLE: Final = b"\x20"  # begins a header block: from here on the table that it is read with is empty
_LARGEST_FRAME: Final = (1 << 24) - 1

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20

FRAME_HEADER: Final = Struct(">HBBBI")  # length (its high 16 bits, its low 8), kind, flags, stream
_SETTING: Final = Struct(">HI")
_WORD: Final = Struct(">I")


class Kind(IntEnum):
    """Frame types."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


_HEADERS: Final = int(Kind.HEADERS)  # for every reply: a member of an enumeration is dearer to name


class Code(IntEnum):
    """Error codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """Identifiers in SETTINGS."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ConnectionFault(Exception):
    """The peer broke a rule that all streams share; the connection ends with GOAWAY ``code``."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


class StreamFault(Exception):
    """The peer broke a rule of one stream; that stream ends with RST_STREAM ``code``."""

    def __init__(self, stream_id: int, code: Code) -> None:
        super().__init__(code.name)
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """One frame; ``payload`` has at most 2^24 - 1 bytes."""
    return frame_header(len(payload), kind, flags, stream_id) + payload


def frame_header(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The nine bytes before a payload of ``size`` bytes."""
    return FRAME_HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id)


def data_header(size: int, flags: int, stream_id: int) -> bytes:
    """``frame_header`` of DATA."""
    return FRAME_HEADER.pack(size >> 8, size & 0xFF, 0, flags, stream_id)


def settings(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(Kind.SETTINGS, 0, 0, b"".join([_SETTING.pack(*item) for item in values.items()]))


class PeerSettings(NamedTuple):
    """``window``: its INITIAL_WINDOW_SIZE, if it sets one.

    ``smaller_table``: its header table became smaller than ``TABLE_BYTES``. The next block that it gets must then begin
    with a size that fits, also of whoever uses no table (RFC 7541 section 4.2); ``NO_TABLE`` always fits.
    """

    window: int | None
    smaller_table: bool


def read_settings(payload: bytes) -> PeerSettings:
    """What concerns us of what the peer sets. Raises ``ConnectionFault`` for what none may set."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR)
    window: int | None = None
    smaller_table = False
    for key, value in _SETTING.iter_unpack(payload):
        if key == Setting.INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR)
            window = value
        elif key == Setting.HEADER_TABLE_SIZE:
            smaller_table = smaller_table or value < TABLE_BYTES
        elif (key == Setting.ENABLE_PUSH and value > 1) or (
            key == Setting.MAX_FRAME_SIZE and not FRAME_BYTES <= value <= _LARGEST_FRAME
        ):
            raise ConnectionFault(Code.PROTOCOL_ERROR)
    return PeerSettings(window, smaller_table)


def must_have(size: int, payload: bytes) -> None:
    """Raises ``ConnectionFault`` unless ``payload`` has ``size`` bytes."""
    if len(payload) != size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR)


def window_update(stream_id: int, increment: int) -> bytes:
    """More room for DATA from the peer, in bytes; stream 0 is the connection."""
    return frame(Kind.WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment))


def rst_stream(stream_id: int, code: Code) -> bytes:
    """The end of a stream that has no end."""
    return frame(Kind.RST_STREAM, 0, stream_id, _WORD.pack(code))


def goaway(last_stream_id: int, code: Code) -> bytes:
    """No stream above ``last_stream_id`` was or will be looked at."""
    return frame(Kind.GOAWAY, 0, 0, _WORD.pack(last_stream_id) + _WORD.pack(code))


def word(payload: bytes) -> int:
    """The 31 bits of a window increment, or the 32 of an error code, that ``payload`` begins with."""
    return int.from_bytes(payload[:4], "big")


def head_frames(stream_id: int, block: bytes, *, ended: bool) -> bytes:
    """A header block as one HEADERS frame, and CONTINUATION frames when it is longer than a frame."""
    flags = END_STREAM if ended else 0
    size = len(block)
    if size <= FRAME_BYTES:
        return FRAME_HEADER.pack(size >> 8, size & 0xFF, _HEADERS, flags | END_HEADERS, stream_id) + block
    parts = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    last = len(parts) - 1
    return b"".join(
        frame(
            Kind.CONTINUATION if at else Kind.HEADERS,
            (0 if at else flags) | (END_HEADERS if at == last else 0),
            stream_id,
            part,
        )
        for at, part in enumerate(parts)
    )


def without_padding(flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding and priority. Raises ``ConnectionFault``."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR)
        start, end = 1, end - payload[0]
    if flags & PRIORITY:
        start += 5
    if start > end:
        raise ConnectionFault(Code.PROTOCOL_ERROR)
    return payload[start:end]
