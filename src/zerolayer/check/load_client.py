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

from zerolayer.check.carrier import Carrier, Http1Carrier, Http2Carrier
from zerolayer.check.errors import TargetError
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.network import Endpoint, Network, SystemNetwork
from zerolayer.client.address import network_reason

READ_BYTES = 1 << 18
SPIN_NS = 2_000_000  # epoll's timeout has a resolution of 1 ms: the last stretch before a send is polled
MILLISECOND = 1_000_000
QUIET_NS = 20 * MILLISECOND  # before the next send: time for something else
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, with RST

Clock = Callable[[], int]
Follow = Callable[[Exchange], Iterable[Planned]]


class _Connection:
    """One socket and its protocol."""

    def __init__(self, sock: socket.socket, carrier: Carrier) -> None:
        self.sock = sock
        self.carrier = carrier
        self.unsent = memoryview(b"")
        self.active: list[Exchange] = []


class LoadClient:
    """Sends planned requests at their times and collects the exchanges.

    HTTP/1.1 has a connection for each request that is under way, HTTP/2 as few as the server's limit of streams allows.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        timeout_s: float,
        clock: Clock = time.monotonic_ns,
        network: Network | None = None,
    ) -> None:
        self.clock = clock
        self.in_flight: dict[int, Exchange] = {}  # by id()
        self.quiet: Callable[[], None] = _nothing  # called now and then while nothing comes and nothing is due
        self._endpoint, self._timeout_s = endpoint, timeout_s
        self._tls = ssl.create_default_context() if endpoint.tls else None
        if self._tls is not None and endpoint.http2:
            self._tls.set_alpn_protocols(["h2"])
        self._network = network or SystemNetwork()
        self._poll = self._network.poll()
        # Taken from the front: requests are sent in the order in which their connections were opened, and accepted.
        self._ready: deque[_Connection] = deque()  # with room for one exchange more
        self._busy: dict[int, _Connection] = {}
        self._heap: list[tuple[int, int, Planned]] = []
        self._count = 0
        self._woken_ns = clock()

    def close(self) -> None:
        """Close every connection. Idempotent."""
        for connection in [*self._ready, *self._busy.values()]:
            connection.sock.close()
        self._ready.clear()
        self._busy.clear()
        self.in_flight.clear()
        self._poll.close()

    def prepare(self, count: int) -> None:
        """Have room for ``count`` requests on open connections, so that no connect is part of a latency.

        Raises ``TargetError``.
        """
        self._drop_stale()
        while sum(connection.carrier.room for connection in self._ready) < count:
            self._ready.append(self._connect())

    def _drop_stale(self) -> None:
        self._look_at([connection for connection in self._ready if not connection.active])
        self._ready = deque(connection for connection in self._ready if connection.sock.fileno() >= 0)

    def _look_at(self, resting: Iterable[_Connection]) -> None:
        """What can be read on a connection that rests is its end, or what its protocol says on its own account."""
        poller = select.poll()
        numbers = {connection.sock.fileno(): connection for connection in resting}
        for number in numbers:
            poller.register(number, select.POLLIN)
        for number, _ in poller.poll(0) if numbers else ():
            connection = numbers[number]
            try:
                data = connection.sock.recv(READ_BYTES) if self._endpoint.http2 else b""
                connection.carrier.feed(data, self.clock())
                self._write(connection, connection.carrier.answer())
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except OSError:
                data = b""
            if not data or not connection.carrier.room:
                connection.sock.close()

    def _next(self) -> _Connection:
        """A connection with room. Servers close those that rested for some seconds, also while a load runs."""
        while self._ready:
            first = self._ready[0]
            if not first.active:
                self._look_at((first,))
            if first.sock.fileno() >= 0 and first.carrier.room:
                return first
            self._ready.popleft()  # the server has closed it, or lowered its limit
        return self._connect()

    def _connect(self) -> _Connection:
        carrier: Carrier = Http2Carrier() if self._endpoint.http2 else Http1Carrier()
        try:
            sock = self._network.connect(self._endpoint, self._timeout_s)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self._endpoint.host)
            if hello := carrier.answer():
                sock.sendall(hello)
            while not carrier.greeted and carrier.room:
                if not (data := sock.recv(READ_BYTES)):
                    break
                carrier.feed(data, self.clock())
            if hello := carrier.answer():
                sock.sendall(hello)
        except OSError as error:
            raise TargetError(
                f"{self._endpoint} cannot be reached: {network_reason(error)}. Check the address."
            ) from None
        if not (carrier.greeted and carrier.room):
            sock.close()
            raise TargetError(f"{self._endpoint} does not speak HTTP/2. Leave --http2 out.")
        sock.setblocking(False)
        return _Connection(sock, carrier)

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
        while (self._heap or self.in_flight) and not (until is not None and not self._heap and until()):
            ended = self._send_due()
            ended += self._read(self._patience_ns())
            ended += self._expire()
            for exchange in ended:
                done.append(exchange)
                for each in follow(exchange) if follow is not None else ():
                    self._plan(each)
        return done

    def abort(self, exchanges: Iterable[Exchange]) -> None:
        """Leave: reset the streams of these exchanges, or their connections where those carry one each."""
        for exchange in list(exchanges):
            if id(exchange) in self.in_flight:
                exchange.aborted = True
                self._leave(exchange)

    def _leave(self, exchange: Exchange) -> None:
        connection = next(each for each in self._busy.values() if exchange in each.active)
        goodbye = connection.carrier.leave(exchange)
        if goodbye is None:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.carrier.end_of_file(self.clock())
        else:
            self._write(connection, goodbye)
        self._release(connection, exchange)

    def _plan(self, planned: Planned) -> None:
        heapq.heappush(self._heap, (planned.intended_ns, self._count, planned))
        self._count += 1

    def _patience_ns(self) -> int:
        limit = 100 * MILLISECOND
        return min(limit, max(0, self._heap[0][0] - self.clock())) if self._heap else limit

    def _send_due(self) -> list[Exchange]:
        """Send what is due; exchanges that failed at once."""
        failed: list[Exchange] = []
        while self._heap and self._heap[0][0] <= self.clock():
            planned = heapq.heappop(self._heap)[2]
            connection = self._next()
            exchange = Exchange(planned, sent_ns=self.clock())
            data = connection.carrier.begin(exchange)
            if self._ready and not connection.carrier.room:
                self._ready.popleft()
            elif not self._ready and connection.carrier.room:
                self._ready.append(connection)
            self.in_flight[id(exchange)] = exchange
            number = connection.sock.fileno()
            if not connection.active:
                self._busy[number] = connection
                self._poll.register(number, select.EPOLLIN)
            connection.active.append(exchange)
            if not self._write(connection, data):
                exchange.error = "closed"
                failed += self._lost(connection)
        return failed

    def _write(self, connection: _Connection, data: bytes) -> bool:
        """Send, or keep for later what the socket does not take now. False when the connection is gone."""
        if connection.unsent:
            connection.unsent = memoryview(bytes(connection.unsent) + data)
            return True
        try:
            sent = connection.sock.send(data) if data else 0
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        except OSError:
            return False
        connection.unsent = memoryview(data)[sent:]
        if connection.unsent and connection.active:
            self._poll.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        return True

    def _read(self, patience_ns: int) -> list[Exchange]:
        """One wait and all that it brought. What is there before the wait may have come since the last one began."""
        since_ns, self._woken_ns = self._woken_ns, self.clock()
        events = self._poll.poll(0)
        if not events:
            # Rounded down, so that a send is never late by the rest of a millisecond: the last two are polled.
            events = self._poll.poll(max(0, patience_ns - SPIN_NS) // MILLISECOND / 1000)
            if not events and self._patience_ns() > QUIET_NS:
                self.quiet()
            since_ns = self._woken_ns = self.clock()
        ended: list[Exchange] = []
        for number, mask in events:
            connection = self._busy.get(number)
            if connection is None:
                continue
            if mask & select.EPOLLOUT and connection.unsent:
                self._write_rest(connection)
            if mask & ~select.EPOLLOUT:
                ended += self._receive(connection, since_ns)
        return ended

    def _write_rest(self, connection: _Connection) -> None:
        try:
            connection.unsent = connection.unsent[connection.sock.send(connection.unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return
        except OSError:
            connection.unsent = memoryview(b"")  # the read that follows tells what happened
        if not connection.unsent:
            self._poll.modify(connection.sock.fileno(), select.EPOLLIN)

    def _receive(self, connection: _Connection, since_ns: int) -> list[Exchange]:
        """Read what is there; the exchanges that it ended."""
        ended: list[Exchange] = []
        while True:
            try:
                data = connection.sock.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return ended
            except OSError:
                data = b""
                for exchange in connection.active:
                    exchange.error = "reset"
            now_ns = self.clock()
            for exchange in connection.active:
                exchange.lag_ns = max(exchange.lag_ns, now_ns - max(since_ns, exchange.sent_ns))
            if not data:
                return ended + self._lost(connection)
            over = connection.carrier.feed(data, now_ns)
            alive = self._write(connection, connection.carrier.answer())
            for exchange in over:
                self._release(connection, exchange)
            ended += over
            if connection.active and not alive:
                return ended + self._lost(connection)
            more = isinstance(connection.sock, ssl.SSLSocket) and connection.sock.pending() > 0
            if not connection.active or not more:
                return ended

    def _lost(self, connection: _Connection) -> list[Exchange]:
        """The connection has ended, and everything on it."""
        over = connection.carrier.end_of_file(self.clock())
        for exchange in over:
            self._release(connection, exchange)
        return over

    def _release(self, connection: _Connection, exchange: Exchange) -> None:
        """An exchange is over; its connection goes on if it can."""
        del self.in_flight[id(exchange)]
        connection.active.remove(exchange)
        if not connection.active:
            del self._busy[connection.sock.fileno()]
            self._poll.unregister(connection.sock.fileno())
            if not connection.carrier.room or (connection.unsent and not self._endpoint.http2):
                connection.sock.close()
        if connection.sock.fileno() >= 0 and connection.carrier.room and connection not in self._ready:
            self._ready.append(connection)

    def _expire(self) -> list[Exchange]:
        limit_ns = self.clock() - int(self._timeout_s * 1e9)
        late = [exchange for exchange in self.in_flight.values() if exchange.sent_ns < limit_ns]
        for exchange in late:
            exchange.error = "timeout"
            self._leave(exchange)
        return late


def _nothing() -> None:
    """Nobody wants to know."""


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
