"""The load client: sockets and epoll, nothing between the schedule and the kernel that could be taken for the server.

A pulse's requests are written in one tight loop before anything is read. Every exchange keeps the intended time, the
time of the real send, and a bound on how late this loop can have been in reading its end.
"""

from __future__ import annotations

import heapq
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zerolayer.check.errors import TargetError
from zerolayer.check.exchange import Exchange, Planned, ReplyParser

READ_BYTES = 1 << 18
SPIN_NS = 2_000_000  # epoll's timeout has a resolution of 1 ms: the last stretch before a send is polled
MILLISECOND = 1_000_000
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, with RST

Clock = Callable[[], int]
Follow = Callable[[Exchange], Iterable[Planned]]


@dataclass(frozen=True)
class Endpoint:
    """Where to connect."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class _Connection:
    """One socket and the exchange on it, if any."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parser: ReplyParser | None = None
        self.unsent = memoryview(b"")


class LoadClient:
    """Sends planned requests at their times, each on a connection of its own, and collects the exchanges."""

    def __init__(self, endpoint: Endpoint, timeout_s: float, clock: Clock = time.monotonic_ns) -> None:
        self.clock = clock
        self.in_flight: dict[int, Exchange] = {}
        self._endpoint, self._timeout_s = endpoint, timeout_s
        self._tls = ssl.create_default_context() if endpoint.tls else None
        self._poll = select.epoll()
        # Taken from the front: requests are sent in the order in which their connections were opened, and accepted.
        self._idle: deque[_Connection] = deque()
        self._busy: dict[int, _Connection] = {}
        self._heap: list[tuple[int, int, Planned]] = []
        self._count = 0
        self._woken_ns = clock()

    def close(self) -> None:
        """Close every connection. Idempotent."""
        for connection in [*self._idle, *self._busy.values()]:
            connection.sock.close()
        self._idle.clear()
        self._busy.clear()
        self.in_flight.clear()
        self._poll.close()

    def prepare(self, count: int) -> None:
        """Have ``count`` open connections ready, so that no connect is part of a latency. Raises ``TargetError``."""
        self._drop_stale()
        while len(self._idle) < count:
            self._idle.append(self._connect())

    def _drop_stale(self) -> None:
        """An idle connection that can be read has been closed by the server, or holds bytes nobody asked for."""
        if not self._idle:
            return
        poller = select.poll()
        for connection in self._idle:
            poller.register(connection.sock, select.POLLIN)
        stale = {number for number, _ in poller.poll(0)}
        for connection in self._idle:
            if connection.sock.fileno() in stale:
                connection.sock.close()
        self._idle = deque(connection for connection in self._idle if connection.sock.fileno() >= 0)

    def _connect(self) -> _Connection:
        try:
            sock = socket.create_connection((self._endpoint.host, self._endpoint.port), timeout=self._timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self._endpoint.host)
        except OSError as error:
            raise TargetError(f"{self._endpoint} cannot be reached ({type(error).__name__}).") from None
        sock.setblocking(False)
        return _Connection(sock)

    def run(
        self,
        planned: Iterable[Planned],
        follow: Follow | None = None,
        until: Callable[[], bool] | None = None,
    ) -> list[Exchange]:
        """Send all, wait for all; the exchanges that ended, in the order of their ends.

        ``follow`` may plan further requests when one ended. ``until`` ends the wait early; what is in flight stays so.
        Raises ``TargetError`` when a connection cannot be opened.
        """
        for each in planned:
            self._plan(each)
        done: list[Exchange] = []
        while (self._heap or self._busy) and not (until is not None and not self._heap and until()):
            self._send_due(done)
            ended = self._read(self._patience_ns())
            ended += self._expire()
            for exchange in ended:
                done.append(exchange)
                for each in follow(exchange) if follow is not None else ():
                    self._plan(each)
        return done

    def abort(self, exchanges: Iterable[Exchange]) -> None:
        """Leave: reset the connections of these exchanges."""
        leaving = set(map(id, exchanges))
        for number, exchange in list(self.in_flight.items()):
            if id(exchange) in leaving:
                exchange.aborted = True
                connection = self._busy[number]
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._release(number, reusable=False)

    def _plan(self, planned: Planned) -> None:
        heapq.heappush(self._heap, (planned.intended_ns, self._count, planned))
        self._count += 1

    def _patience_ns(self) -> int:
        limit = 100 * MILLISECOND
        return min(limit, max(0, self._heap[0][0] - self.clock())) if self._heap else limit

    def _send_due(self, done: list[Exchange]) -> None:
        while self._heap and self._heap[0][0] <= self.clock():
            planned = heapq.heappop(self._heap)[2]
            connection = self._idle.popleft() if self._idle else self._connect()
            exchange = Exchange(planned, sent_ns=self.clock())
            connection.parser = ReplyParser(exchange)
            try:
                sent = connection.sock.send(planned.payload)
            except (BlockingIOError, ssl.SSLWantWriteError):
                sent = 0
            except OSError:
                exchange.error = "closed"
                connection.sock.close()
                done.append(exchange)
                continue
            connection.unsent = memoryview(planned.payload)[sent:]
            number = connection.sock.fileno()
            self._busy[number], self.in_flight[number] = connection, exchange
            self._poll.register(number, select.EPOLLIN | (select.EPOLLOUT if connection.unsent else 0))

    def _read(self, patience_ns: int) -> list[Exchange]:
        """One wait and all that it brought. A wait that does not sleep finds bytes that came during the last round."""
        before_ns = self.clock()
        # Rounded down, so that a send is never late by the rest of a millisecond: the last two are polled.
        sleep_s = max(0, patience_ns - SPIN_NS) // MILLISECOND / 1000
        events = self._poll.poll(sleep_s)
        woken_ns = self.clock()
        since_ns = woken_ns if woken_ns - before_ns > 20_000 else self._woken_ns
        self._woken_ns = woken_ns
        ended: list[Exchange] = []
        for number, mask in events:
            connection = self._busy[number]
            if mask & select.EPOLLOUT and connection.unsent:
                self._write_rest(number, connection)
            if mask & ~select.EPOLLOUT and self._receive(number, connection, since_ns):
                parser = connection.parser
                ended.append(self._release(number, reusable=parser is not None and parser.reusable))
        return ended

    def _write_rest(self, number: int, connection: _Connection) -> None:
        try:
            connection.unsent = connection.unsent[connection.sock.send(connection.unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return
        except OSError:
            connection.unsent = memoryview(b"")  # the read that follows tells what happened
        if not connection.unsent:
            self._poll.modify(number, select.EPOLLIN)

    def _receive(self, number: int, connection: _Connection, since_ns: int) -> bool:
        """Read what is there; True when the exchange is over."""
        parser, exchange = connection.parser, self.in_flight[number]
        if parser is None:
            return True
        while True:
            try:
                data = connection.sock.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return False
            except OSError:
                data, exchange.error = b"", "reset"
            now_ns = self.clock()
            exchange.lag_ns = max(exchange.lag_ns, now_ns - since_ns)
            if not data:
                if not exchange.error:
                    parser.end_of_file(now_ns)
                return True
            if parser.feed(data, now_ns):
                return True
            if not isinstance(connection.sock, ssl.SSLSocket) or not connection.sock.pending():
                return False

    def _release(self, number: int, *, reusable: bool) -> Exchange:
        connection, exchange = self._busy.pop(number), self.in_flight.pop(number)
        self._poll.unregister(number)
        connection.parser = None
        if reusable and not exchange.error and not connection.unsent:
            self._idle.append(connection)
        else:
            connection.sock.close()
        return exchange

    def _expire(self) -> list[Exchange]:
        limit_ns = self.clock() - int(self._timeout_s * 1e9)
        late = [number for number, exchange in self.in_flight.items() if exchange.sent_ns < limit_ns]
        for number in late:
            self.in_flight[number].error = "timeout"
        return [self._release(number, reusable=False) for number in late]


def timer_lag_us(clock: Clock, count: int) -> list[int]:
    """How late this process wakes from a wait of 1 ms, in microseconds each time: the machine's share of our lag."""
    poll, late = select.epoll(), []
    try:
        for _ in range(count):
            start = clock()
            poll.poll(0.001)
            late.append(max(0, clock() - start - MILLISECOND) // 1000)
    finally:
        poll.close()
    return late
