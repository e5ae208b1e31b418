"""What an HTTP/2 connection tells its host. ``stream_id`` names the request."""

from __future__ import annotations

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.wire.http1_head import Head


class Opened(msgspec.Struct, frozen=True):
    """A request begins; ``Message`` or, when asked for, ``Chunk`` brings its body. ``head`` is None when unreadable."""

    stream_id: int
    head: Head | None


class Message(msgspec.Struct, frozen=True):
    """The request is complete."""

    stream_id: int
    body: bytes


class Chunk(msgspec.Struct, frozen=True):
    """A part of the body of a stream that ``Http2Protocol.incremental`` was called for."""

    stream_id: int
    data: bytes
    ended: bool


class Refused(msgspec.Struct, frozen=True):
    """The request breaks a limit: answer it with ``error``."""

    stream_id: int
    error: ZerolayerError


class Gone(msgspec.Struct, frozen=True):
    """The stream ended without our doing: reset by the peer, or for a fault of its own."""

    stream_id: int


class Closed(msgspec.Struct, frozen=True):
    """The last event of a connection: write what ``take`` gives, then close."""

    code: int
    stream_id: int = 0


Event = Opened | Message | Chunk | Refused | Gone | Closed
