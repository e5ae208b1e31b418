"""A load client that costs the machine it shares with the server almost nothing: sockets, epoll, counted bytes.

A token costs one ``recv``, one ``count`` and one clock reading; nothing is decoded. Latencies run from the *intended*
send time: the schedule's in an open loop, the moment a worker became free in a closed one, so a client that lags cannot
flatter the server.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lean_reply import Reply

RECV_BYTES = 1 << 14


@dataclass
class Record:
    """What one request experienced; times are nanoseconds of the loop's clock."""

    intended_ns: int
    sent_ns: int = 0
    end_ns: int = 0
    status: int = 0
    arrivals: list[tuple[int, int]] = field(default_factory=list)  # (time, events that arrived then)
    tokens: int = 0
    refusals: int = 0
    reconnects: int = 0
    error: str = ""
    attempts: list[tuple[int, int, float]] = field(default_factory=list)  # refused: sent, answered, booked after ms
    last_sent_ns: int = 0  # the attempt that decided
    first_token_ms: float | None = None  # promised
    starts: dict[int, tuple[int, int]] = field(default_factory=dict)  # by time of sending: due, and awake

    @property
    def ok(self) -> bool:
        """Answered completely."""
        return self.status == 200 and not self.error


@dataclass
class _Job:
    record: Record
    payload: bytes
    sent_ns: int = 0  # this attempt


class _Connection:
    """A socket that carries one request at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.job: _Job | None = None
        self.reply = Reply()
        self.unsent = b""
        self.fresh = True
        self.closed = False
        self.events = select.EPOLLOUT


class LoadLoop:
    """Sends requests to one server when they are due, until none is left."""

    def __init__(
        self,
        url: str,
        *,
        retry: bool = False,
        attempts: int = 1 << 30,
        timeout_s: float = 600.0,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        ended: Callable[[Record], None] | None = None,
    ) -> None:
        parts = urlsplit(url)
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)[0]
        self._family, self._address = found[0], found[4]
        self._retry = retry
        self._attempts = attempts  # that one request makes at most
        self._timeout_ns = int(timeout_s * 1e9)
        self._clock_ns = clock_ns
        self._ended = ended  # is told of every record that is complete
        self._epoll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[int, int, _Job]] = []
        self._order = itertools.count()
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._next: Iterator[bytes] = iter(())
        self.records: list[Record] = []

    def closed(self, payloads: Iterable[bytes], concurrency: int) -> list[Record]:
        """``concurrency`` workers; each sends its next request when its last one has ended."""
        self._next = iter(payloads)
        for _ in range(concurrency):
            self._send_next()
        return self._run()

    def open(self, payloads: Iterable[bytes], offsets_s: Iterable[float]) -> list[Record]:
        """One request at each offset from now, whatever became of the earlier ones."""
        start = self._clock_ns() + 50_000_000
        for payload, offset in zip(payloads, offsets_s, strict=True):
            self._schedule(_Job(Record(start + int(offset * 1e9)), payload), start + int(offset * 1e9))
        return self._run()

    def close(self) -> None:
        """Close every socket."""
        for connection in [*self._idle, *self._busy]:
            connection.sock.close()
        self._epoll.close()

    def _schedule(self, job: _Job, due_ns: int) -> None:
        heapq.heappush(self._due, (due_ns, next(self._order), job))

    def _send_next(self) -> None:
        payload = next(self._next, None)
        if payload is not None:
            now = self._clock_ns()
            self._schedule(_Job(Record(now), payload), now)

    def _run(self) -> list[Record]:
        self.records = []
        now = self._clock_ns()
        check_ns = now + 1_000_000_000
        while self._due or self._busy:
            while self._due and self._due[0][0] <= now:
                due_ns, _, job = heapq.heappop(self._due)
                self._start(job, due_ns, now)
            if now > check_ns:
                check_ns = now + 1_000_000_000
                self._drop_overdue(now)
            next_ns = check_ns
            if self._due:
                now, next_ns = self._clock_ns(), min(check_ns, self._due[0][0])
            ready = self._epoll.poll(max(0.0, (next_ns - now) / 1e9))
            now = self._clock_ns()
            for descriptor, events in ready:
                connection = self._connections[descriptor]
                if events & select.EPOLLOUT:
                    self._flush(connection)
                if events & ~select.EPOLLOUT and not connection.closed:
                    self._read(connection, now)
        return self.records

    def _start(self, job: _Job, due_ns: int, awake_ns: int) -> None:
        job.sent_ns = self._clock_ns()
        job.record.starts[job.sent_ns] = (due_ns, awake_ns)
        job.record.last_sent_ns = job.sent_ns
        job.record.sent_ns = job.record.sent_ns or job.sent_ns
        if self._idle:
            connection = self._idle.pop()
            connection.fresh = False
        else:
            sock = socket.socket(self._family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(sock)
            self._connections[sock.fileno()] = connection
            self._epoll.register(sock, select.EPOLLOUT)
            code = sock.connect_ex(self._address)
            if code not in (0, errno.EINPROGRESS):
                connection.job = job
                self._end(connection, f"connect: {errno.errorcode.get(code, code)}")
                return
        connection.job = job
        connection.reply = Reply()
        connection.unsent = job.payload
        self._busy.add(connection)
        if not connection.fresh:
            self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        try:
            sent = connection.sock.send(connection.unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lost(connection, error)
            return
        connection.unsent = connection.unsent[sent:]
        events = select.EPOLLIN | (select.EPOLLOUT if connection.unsent else 0)
        if connection.events != events:
            connection.events = events
            self._epoll.modify(connection.sock, events)

    def _read(self, connection: _Connection, now_ns: int) -> None:
        try:
            data = connection.sock.recv(RECV_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(connection, error)
            return
        if connection.job is None:  # an idle connection that the server closed
            self._discard(connection)
        elif not data:
            if not connection.reply.begun and not connection.fresh:
                self._lost(connection, ConnectionResetError())
                return
            connection.reply.end_of_file()
            self._complete(connection)
        else:
            try:
                complete = connection.reply.feed(data, now_ns)
            except (ValueError, IndexError):
                self._end(connection, "not HTTP/1.1")
                return
            if complete:
                self._complete(connection)

    def _lost(self, connection: _Connection, error: OSError) -> None:
        """A pooled connection that the server had closed is replaced at once, and the clock runs on."""
        job = connection.job
        if job is not None and not connection.fresh and not connection.reply.begun and job.record.reconnects < 5:
            job.record.reconnects += 1
            connection.job = None
            self._discard(connection)
            self._schedule(job, self._clock_ns())
        elif job is None:
            self._discard(connection)
        else:
            self._end(connection, type(error).__name__)

    def _complete(self, connection: _Connection) -> None:
        reply, job = connection.reply, connection.job
        assert job is not None
        reply.finish()
        if reply.status in (429, 503) and not reply.error:
            job.record.refusals += 1
            told = reply.retry_after_ms
            booked_ms = told if reply.booked and told is not None else -1.0
            job.record.attempts.append((job.sent_ns, self._clock_ns(), booked_ms))
            if self._retry and told is not None and job.record.refusals < self._attempts:
                self._park(connection)
                job.payload = job.payload.replace(
                    b"x-stainless-retry-count: %d\r\n" % (job.record.refusals - 1),
                    b"x-stainless-retry-count: %d\r\n" % job.record.refusals,
                    1,
                )
                self._schedule(job, self._clock_ns() + int(told * 1e6))
                return
        self._end(connection, reply.error)

    def _end(self, connection: _Connection, error: str) -> None:
        reply, job = connection.reply, connection.job
        assert job is not None
        record = job.record
        record.end_ns, record.status, record.error = self._clock_ns(), reply.status, error
        record.first_token_ms = reply.first_token_ms
        if record.ok:
            record.tokens, record.arrivals = reply.tokens, reply.arrivals
        self.records.append(record)
        if self._ended is not None:
            self._ended(record)
        if error:
            self._discard(connection)
        else:
            self._park(connection)
        self._send_next()

    def _park(self, connection: _Connection) -> None:
        connection.job = None
        if connection.reply.reusable:
            self._busy.discard(connection)
            self._idle.append(connection)
        else:
            self._discard(connection)

    def _discard(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        del self._connections[connection.sock.fileno()]
        self._epoll.unregister(connection.sock)
        connection.sock.close()
        connection.closed = True

    def _drop_overdue(self, now_ns: int) -> None:
        for connection in list(self._busy):
            if connection.job is not None and now_ns - connection.job.record.sent_ns > self._timeout_ns:
                self._end(connection, "timeout")
