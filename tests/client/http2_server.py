"""A server of HTTP/2 for tests: answers when so many requests have come, and counts connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from zerolayer.wire.http2 import Http2Limits, Http2Protocol
from zerolayer.wire.http2_events import Gone, Message, Opened


class Http2Server(asyncio.Protocol):
    """One connection; ``Host`` is what all of them share."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.heads: dict[int, dict[bytes, bytes]] = {}
        self._http2 = Http2Protocol(Http2Limits(streams=host.streams))

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.host.connections.append(self)
        self.flush()

    def connection_lost(self, exc) -> None:
        self.host.lost += 1

    def data_received(self, data: bytes) -> None:
        for event in self._http2.receive(data):
            if isinstance(event, Opened):
                self.heads[event.stream_id] = event.head.values
            elif isinstance(event, Message):
                self.host.come(self, event.stream_id, event.body)
            elif isinstance(event, Gone):
                self.host.left += 1
        self.flush()

    def answer(self, stream_id: int, reply: bytes) -> None:
        headers = [(b"server", b"zerolayer/test"), (b"content-type", b"text/event-stream")]
        self._http2.reply(stream_id, 200, headers, reply)
        self.flush()

    def begin(self, stream_id: int, piece: bytes) -> None:
        """The head and a first piece of an answer that never ends."""
        headers = [(b"server", b"zerolayer/test"), (b"content-type", b"text/event-stream")]
        self._http2.open_reply(stream_id, 200, headers)
        self._http2.send(stream_id, piece)
        self.flush()

    def go_away(self) -> None:
        self._http2.go_away()
        self.flush()

    def flush(self) -> None:
        self.transport.write(self._http2.take())


class Host:
    """Answers all that wait whenever ``together`` of them do; 0: never. ``endless``: answers begin, and never end."""

    def __init__(self, reply: bytes, together: int = 1, streams: int = 256, *, endless: bool = False) -> None:
        self.endless = endless
        self.reply = reply
        self.together = together
        self.streams = streams
        self.connections: list[Http2Server] = []
        self.bodies: list[bytes] = []
        self.left = 0  # streams that their client cancelled
        self.lost = 0  # connections that are closed
        self._waiting: list[tuple[Http2Server, int]] = []

    def come(self, connection: Http2Server, stream_id: int, body: bytes) -> None:
        self.bodies.append(body)
        self._waiting.append((connection, stream_id))
        if len(self._waiting) == self.together:
            waiting, self._waiting = self._waiting, []
            for each, number in waiting:
                if self.endless:
                    each.begin(number, self.reply)
                else:
                    each.answer(number, self.reply)


@asynccontextmanager
async def serving(host: Host, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The server's URL."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Http2Server(host), "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in host.connections:
            connection.transport.close()


async def soon(holds: Callable[[], object]) -> None:
    """Until it holds, for ten seconds at most."""
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")
