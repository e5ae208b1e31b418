"""Load on a front door: prepared requests over HTTP/1.1 and HTTP/2, replies counted, nothing decoded.

One thread, epoll, raw sockets. What is measured is the server's CPU, so a client need only keep it fed.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence

import hpack

RECV_BYTES = 1 << 18
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = END_STREAM = 1
_END_HEADERS = 4
_WINDOW = 65_535
_LARGEST = (1 << 31) - 1
_IDLE_S = 20.0
NO_TABLE = b"\x20"  # the client's table size is 0 from here on (RFC 7541 section 6.3)


class NoAnswer(Exception):
    """The server refused, broke off or fell silent; the run means nothing."""


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


def blocks(fields: Sequence[tuple[str, str]], changing: str = "", values: Sequence[str] = ("",)) -> list[bytes]:
    """Header blocks as a stock encoder writes them for a peer without a dynamic table, one for each value.

    They follow a block that begins with ``NO_TABLE``.
    """
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    encoder.encode([])  # takes the announcement of that size
    more = [[(changing, value)] if changing else [] for value in values]
    return [encoder.encode([*fields, *extra]) for extra in more]


class Connection:
    """A non-blocking socket, what it could not send yet, and what arrived incomplete."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.unsent = b""
        self.buffer = b""

    def send(self, data: bytes) -> None:
        """Send now what the kernel takes; the rest goes with the next call."""
        data = self.unsent + data
        try:
            self.unsent = data[self.sock.send(data) :]
        except BlockingIOError:
            self.unsent = data

    def receive(self) -> bytes:
        """What has arrived. Raises ``NoAnswer`` at the end of the connection."""
        try:
            data = self.sock.recv(RECV_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise NoAnswer("the server closed a connection")
        return data


class _Load:
    """Connections of one kind under one epoll."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._epoll = select.epoll()
        self._by_fd = {connection.sock.fileno(): connection for connection in connections}
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)

    def close(self) -> None:
        """Close every socket."""
        for connection in self._by_fd.values():
            connection.sock.close()
        self._epoll.close()

    def _ready(self) -> Iterator[Connection]:
        """Connections with news, those that could not send all of it served on the way."""
        behind = any(connection.unsent for connection in self._by_fd.values())
        ready = self._epoll.poll(0.001 if behind else _IDLE_S)
        if not ready and not behind:
            raise NoAnswer(f"nothing came for {_IDLE_S:g} s")
        if behind:
            for connection in self._by_fd.values():
                connection.send(b"")
        for fd, _ in ready:
            yield self._by_fd[fd]


class Http1Load(_Load):
    """One request at a time on each of ``connections``; ``requests`` are taken in turn."""

    def __init__(self, port: int, connections: int, requests: Sequence[bytes]) -> None:
        super().__init__([Connection(port) for _ in range(connections)])
        self._requests = requests
        self._next = 0

    def run(self, count: int, status: bytes = b"200") -> int:
        """``count`` requests or more, each answered completely and with ``status``; how many. Raises ``NoAnswer``."""
        begun = done = 0
        for connection in self._by_fd.values():
            begun += self._ask(connection)
        while done < count:
            for connection in self._ready():
                connection.buffer += connection.receive()
                if not _complete(connection.buffer):
                    continue
                if connection.buffer[9:12] != status:
                    raise NoAnswer(f"a reply began with {connection.buffer[:60]!r}")
                connection.buffer = b""
                done += 1
                if begun < count:
                    begun += self._ask(connection)
        return done

    def _ask(self, connection: Connection) -> int:
        connection.send(self._requests[self._next])
        self._next = (self._next + 1) % len(self._requests)
        return 1


def _complete(reply: bytes) -> bool:
    end = reply.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = reply[:end].lower()
    at = head.find(b"content-length:")
    if at < 0:
        return reply.endswith(b"0\r\n\r\n")
    return len(reply) - end - 4 >= int(head[at + 15 :].split(b"\r\n", 1)[0])


class SseLoad(_Load):
    """A stream on each of ``connections``, begun by ``request``. ``tokens`` counts events of all."""

    def __init__(self, port: int, connections: int, request: bytes) -> None:
        super().__init__([Connection(port) for _ in range(connections)])
        self.tokens = 0
        self.reads: list[tuple[int, int]] = []  # when, and how many events came in one read
        for connection in self._by_fd.values():
            connection.send(request)

    def until(self, tokens: int) -> None:
        """Read until so many events have come in all."""
        while self.tokens < tokens:
            for connection in self._ready():
                data = connection.receive()
                if data.startswith(b"HTTP/1.1 ") and data[9:12] != b"200":
                    raise NoAnswer(f"a stream began with {data[:60]!r}")
                count = data.count(b"\n\n")
                self.tokens += count
                if len(self._by_fd) == 1:
                    self.reads.append((time.perf_counter_ns(), count))


class _Http2Connection(Connection):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.window = _WINDOW
        self.next_id = 1
        self.open = 0
        self.messages: dict[int, bytes] = {}  # stream -> a gRPC message that is not complete
        settings = (4).to_bytes(2, "big") + _LARGEST.to_bytes(4, "big")
        grow = frame(_WINDOW_UPDATE, 0, 0, (_LARGEST - _WINDOW).to_bytes(4, "big"))
        self.send(_PREFACE + frame(_SETTINGS, 0, 0, settings) + grow)

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of what has arrived whole; control frames are answered here."""
        data = self.buffer + self.receive()
        at = 0
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            kind, flags, payload = data[at + 3], data[at + 4], data[at + 9 : end]
            stream_id = int.from_bytes(data[at + 5 : at + 9], "big")
            at = end
            if kind in (_DATA, _HEADERS):
                yield kind, flags, stream_id, payload
            else:
                self._steer(kind, flags, stream_id, payload)
        self.buffer = data[at:]

    def _steer(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind in (_RST_STREAM, _GOAWAY):
            raise NoAnswer(f"the server sent a frame of type {kind}: {payload[:60]!r}")
        if kind == _WINDOW_UPDATE and not stream_id:
            self.window += int.from_bytes(payload, "big")
        elif kind == _SETTINGS and not flags & _ACK:
            self.send(frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.send(frame(_PING, _ACK, 0, payload))


class Http2Load(_Load):
    """``in_flight`` requests at once on each of ``connections``; header blocks are taken in turn, the body is one."""

    def __init__(self, port: int, connections: int, in_flight: int, blocks: Sequence[bytes], body: bytes) -> None:
        opened = [_Http2Connection(port) for _ in range(connections)]
        super().__init__(opened)
        self._connections = opened
        self._in_flight = in_flight
        self._blocks = blocks
        self._body = body
        self._next = 0
        self.tokens = 0
        self.reads: list[tuple[int, int]] = []

    def run(self, count: int) -> int:
        """``count`` requests or more, each answered to its end; how many. Raises ``NoAnswer``."""
        begun = done = 0
        for connection in self._connections:
            begun += self._fill(connection, count - begun)
        while done < count:
            for connection in self._ready():
                assert isinstance(connection, _Http2Connection)
                ended = sum(flags & END_STREAM for _, flags, _, _ in connection.frames())
                connection.open -= ended
                done += ended
                begun += self._fill(connection, count - begun)
        return done

    def start(self) -> None:
        """Begin ``in_flight`` streams on each connection, for ``until``."""
        for connection in self._connections:
            self._fill(connection, self._in_flight)

    def until(self, tokens: int) -> None:
        """Read until so many gRPC messages have come in all."""
        while self.tokens < tokens:
            for connection in self._ready():
                assert isinstance(connection, _Http2Connection)
                count = sum(
                    _messages(connection, stream, data) for kind, _, stream, data in connection.frames() if not kind
                )
                self.tokens += count
                if len(self._connections) == self._in_flight == 1:
                    self.reads.append((time.perf_counter_ns(), count))

    def _fill(self, connection: _Http2Connection, left: int) -> int:
        """Begin what may run at once and has room in the window; returns how many."""
        data = []
        while connection.open < self._in_flight and len(data) < left and connection.window >= len(self._body):
            block = self._blocks[self._next] if connection.next_id > 1 else NO_TABLE + self._blocks[self._next]
            self._next = (self._next + 1) % len(self._blocks)
            stream_id = connection.next_id
            data.append(
                frame(_HEADERS, _END_HEADERS, stream_id, block) + frame(_DATA, END_STREAM, stream_id, self._body)
            )
            connection.next_id += 2
            connection.window -= len(self._body)
            connection.open += 1
        if data:
            connection.send(b"".join(data))
        return len(data)


def _messages(connection: _Http2Connection, stream_id: int, payload: bytes) -> int:
    """How many gRPC messages ``payload`` completes."""
    data = connection.messages.pop(stream_id, b"") + payload
    at = count = 0
    while len(data) - at >= 5:
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        if end > len(data):
            break
        at, count = end, count + 1
    if at < len(data):
        connection.messages[stream_id] = data[at:]
    return count
