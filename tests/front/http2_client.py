"""An HTTP/2 client built on the ``h2`` package, on a real socket, with everything in the test's hands."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
import h2.settings


class Http2Client:
    """``give_window`` False: what arrives is never given back, as from a client that does not read."""

    def __init__(self, connected: socket.socket | ssl.SSLSocket, *, window: int | None = None) -> None:
        self.socket = connected
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        if window is not None:
            self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.give_window = window is None
        self.events: list[h2.events.Event] = []
        self.reads = 0
        self.closed = False
        self.flush()

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        """Send a request; its stream. Underscores in header names are dashes."""
        stream_id = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        fields += [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.h2.send_headers(stream_id, fields, end_stream=body is None)
        if body is not None:
            self.h2.send_data(stream_id, body, end_stream=True)
        self.flush()
        return stream_id

    def chat(self, text: str, **members: object) -> int:
        body = {"model": "echo", "messages": [{"role": "user", "content": text}], **members}
        return self.ask("POST", "/v1/chat/completions", json.dumps(body).encode(), content_type="application/json")

    def read(self) -> bool:
        """Take what the server sends next; False at the end of the connection."""
        try:
            data = self.socket.recv(65_536)
        except ConnectionError:
            data = b""
        if not data:
            self.closed = True
            return False
        self.reads += 1
        for event in self.h2.receive_data(data):
            self.events.append(event)
            if isinstance(event, h2.events.DataReceived) and self.give_window and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        try:
            self.flush()
        except OSError:
            self.closed = True
        return True

    def until(self, holds: Callable[[], object], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "it did not come true"
            assert self.read() or holds(), "the connection ended first"

    def of(self, kind: type, stream_id: int | None = None) -> list:
        return [
            event
            for event in self.events
            if isinstance(event, kind) and (stream_id is None or event.stream_id == stream_id)
        ]

    def status(self, stream_id: int) -> int:
        return int(dict(self.of(h2.events.ResponseReceived, stream_id)[0].headers)[":status"])

    def headers(self, stream_id: int) -> dict[str, str]:
        return dict(self.of(h2.events.ResponseReceived, stream_id)[0].headers)

    def body(self, stream_id: int) -> bytes:
        return b"".join(event.data for event in self.of(h2.events.DataReceived, stream_id))

    def ended(self, stream_id: int) -> bool:
        return bool(self.of(h2.events.StreamEnded, stream_id))

    def reply(self, stream_id: int) -> tuple[int, bytes]:
        """Status and body of a complete reply."""
        self.until(lambda: self.ended(stream_id))
        return self.status(stream_id), self.body(stream_id)
