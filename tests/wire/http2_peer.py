"""The other end of the wire: a client built on the ``h2`` package, and frames by hand for what it refuses to send."""

from __future__ import annotations

from collections.abc import Iterable

import h2.config
import h2.connection
import h2.events

from zerolayer.wire.http2 import Http2Limits, Http2Protocol
from zerolayer.wire.http2_events import Event
from zerolayer.wire.http2_frames import FRAME_BYTES, PREFACE, frame, settings

HEADERS = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/x?y=1"), (":authority", "localhost")]
GET = [(":method", "GET"), *HEADERS[1:]]
# GET / of localhost as literals: no table, no Huffman coding.
GET_BLOCK = b"\x82\x86\x84\x01\x09localhost"
POST_BLOCK = b"\x83\x86\x84\x01\x09localhost"


class Peer:
    """A client and our server, with nothing between them but ``exchange``."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        self.server = Http2Protocol(limits or Http2Limits())
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self.client.initiate_connection()
        self.seen: list[Event] = []  # by the server
        self.told: list[h2.events.Event] = []  # to the client
        self.writes: list[bytes] = []
        self.exchange()

    def exchange(self) -> None:
        """Carry bytes both ways until nobody has any."""
        while True:
            up = self.client.data_to_send()
            if up:
                self.seen += self.server.receive(up)
            down = self.server.take()
            if down:
                self.writes.append(down)
                self.told += self.client.receive_data(down)
            if not (up or down):
                return

    def ask(self, body: bytes | None = b"{}", headers: Iterable[tuple[str, str]] = HEADERS) -> int:
        """Send a request; its stream."""
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, list(headers), end_stream=body is None)
        for at in range(0, len(body or b"") or 1, FRAME_BYTES) if body is not None else ():
            piece = body[at : at + FRAME_BYTES]
            self.client.send_data(stream_id, piece, end_stream=at + FRAME_BYTES >= len(body))
        self.exchange()
        return stream_id

    def of(self, kind: type) -> list:
        """What the client was told of this kind."""
        return [event for event in self.told if isinstance(event, kind)]

    def read(self, stream_id: int) -> bytes:
        """The reply's body, its windows given back."""
        before = -1
        while len(body := self.body(stream_id)) > before:
            before = len(body)
            for event in self.of(h2.events.DataReceived):
                if event.flow_controlled_length:
                    self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    event.flow_controlled_length = 0
            self.exchange()
        return body

    def body(self, stream_id: int) -> bytes:
        return b"".join(event.data for event in self.of(h2.events.DataReceived) if event.stream_id == stream_id)


class Raw:
    """A server and bytes by hand; the connection has begun."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        self.server = Http2Protocol(limits or Http2Limits())
        self.server.receive(PREFACE + settings({}))
        self.server.take()

    def send(self, kind: int, flags: int, stream_id: int, payload: bytes = b"") -> list[Event]:
        return self.server.receive(frame(kind, flags, stream_id, payload))

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """What the server wants written: kind, flags, stream, payload."""
        return parse(self.server.take())


def parse(data: bytes) -> list[tuple[int, int, int, bytes]]:
    frames = []
    while data:
        size = int.from_bytes(data[:3], "big")
        frames.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return frames
