"""Frames of HTTP/2 that steer the connection and carry nothing of a request (RFC 9113 sections 6.3 to 6.9).

Each costs toll (``http2_limits``), so that a peer cannot keep the server busy with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from zerolayer.wire.http2_frames import (
    ACK,
    LARGEST_WINDOW,
    NO_TABLE,
    Code,
    ConnectionFault,
    Kind,
    StreamFault,
    frame,
    must_have,
    read_settings,
    word,
)
from zerolayer.wire.http2_limits import Toll, Tolls
from zerolayer.wire.http2_streams import Streams


class Control:
    """Of one connection. Every method raises ``ConnectionFault`` or ``StreamFault`` for what the peer must not send."""

    def __init__(self, tolls: Tolls, streams: Streams) -> None:
        self._tolls = tolls
        self._streams = streams
        self._sender = streams.sender

    def take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Any frame but those of requests; an unknown kind is ignored."""
        handler = self._KINDS.get(kind)
        if handler is None:
            self._tolls.pay(Toll.IGNORED)
        else:
            handler(self, flags, stream_id, payload)

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        if flags & ACK:
            must_have(0, payload)
        self._tolls.pay(Toll.SETTINGS)
        if flags & ACK:
            return
        window, smaller_table = read_settings(payload)
        if window is not None:
            self._sender.set_initial_window(window, self._streams.open)
        if smaller_table:
            self._sender.block_start = NO_TABLE
        self._sender.control(frame(Kind.SETTINGS, ACK, 0, b""))

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        must_have(8, payload)
        self._tolls.pay(Toll.PING)
        if not flags & ACK:
            self._sender.control(frame(Kind.PING, ACK, 0, payload))

    def _goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        must_have(8, payload[:8])
        self._tolls.pay(Toll.IGNORED)  # the client opens no more streams; it closes when its last one is answered

    def _window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        must_have(4, payload)
        self._tolls.pay(Toll.WINDOW_UPDATE)
        if stream_id:
            self._streams.must_exist(stream_id)
        increment = word(payload) & LARGEST_WINDOW
        if not increment:
            raise StreamFault(stream_id, Code.PROTOCOL_ERROR) if stream_id else ConnectionFault(Code.PROTOCOL_ERROR)
        stream = self._streams.open.get(stream_id)
        if stream is not None or not stream_id:
            self._sender.widen(stream, increment)

    def _priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR)
        must_have(5, payload)
        self._tolls.pay(Toll.IGNORED)

    def _push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR)

    _KINDS: ClassVar[dict[int, Callable[[Control, int, int, bytes], None]]] = {
        Kind.SETTINGS: _settings,
        Kind.PING: _ping,
        Kind.GOAWAY: _goaway,
        Kind.WINDOW_UPDATE: _window_update,
        Kind.PRIORITY: _priority,
        Kind.PUSH_PROMISE: _push_promise,
    }
