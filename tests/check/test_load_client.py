"""The load client: its own connection for each request, honest stamps, and nobody hurt when a peer misbehaves."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from check.scripted import Machine
from zerolayer.check.errors import TargetError
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.load_client import LoadClient, timer_lag_us
from zerolayer.check.network import Endpoint

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Peer:
    """Accepts, and lets ``serve`` do what it likes with each connection, in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.serve, self.accepted = serve, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            try:
                self.serve(connection)
            except OSError:
                return


@contextmanager
def client_of(serve: Callable[[socket.socket], None], timeout_s: float = 5.0) -> Iterator[tuple[LoadClient, Peer]]:
    peer = Peer(serve)
    client = LoadClient(Endpoint("127.0.0.1", peer.listener.getsockname()[1], tls=False), timeout_s)
    try:
        yield client, peer
    finally:
        client.close()
        peer.listener.close()


def answering(reply: bytes = OK, wait_s: float = 0.0) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        while connection.recv(65536):
            time.sleep(wait_s)
            connection.sendall(reply)

    return serve


def planned(client: LoadClient, count: int = 1, after_ms: float = 0.0, payload: bytes = REQUEST) -> list[Planned]:
    at = client.clock() + int(after_ms * 1e6)
    return [Planned(at, payload, "pulse", 1, count, position) for position in range(count)]


def test_every_request_of_a_pulse_has_a_connection_of_its_own() -> None:
    with client_of(answering(wait_s=0.05)) as (client, peer):
        client.prepare(6)
        done = client.run(planned(client, 6))
        assert [each.status for each in done] == [200] * 6
        assert peer.accepted == 6


def test_connections_are_used_again() -> None:
    with client_of(answering()) as (client, peer):
        for _ in range(5):
            client.run(planned(client))
        assert peer.accepted == 1


def test_a_connection_that_the_server_closed_in_the_meantime_is_replaced_before_the_pulse() -> None:
    def once(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(OK)

    with client_of(once) as (client, peer):
        for _ in range(3):
            client.prepare(1)
            assert client.run(planned(client))[0].whole
            time.sleep(0.02)
        assert peer.accepted == 3


def test_a_connection_that_the_server_closed_while_a_load_runs_is_not_asked() -> None:
    async def closes_what_rests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError):
            while await asyncio.wait_for(reader.read(65536), 5.0):
                writer.write(OK)
        writer.close()

    machine = Machine(lambda: closes_what_rests)
    client = LoadClient(Endpoint("here", 1, tls=False), 1.0, machine.clock, machine)
    client.prepare(3)
    at = client.clock()
    late = (0, 4_000, 6_000, 6_100, 12_000)
    done = client.run([Planned(at + ms * 1_000_000, REQUEST, "step", 1, 5, n) for n, ms in enumerate(late)])
    assert [each.error for each in done] == [""] * 5
    assert [each.status for each in done] == [200] * 5
    client.close()
    machine.close()


def test_nothing_is_sent_before_its_time() -> None:
    with client_of(answering()) as (client, _):
        client.prepare(1)
        exchange = client.run(planned(client, after_ms=30))[0]
        assert exchange.sent_ns >= exchange.planned.intended_ns
        assert exchange.end_ns > exchange.sent_ns


def test_a_follow_up_is_planned_when_its_cause_ended() -> None:
    with client_of(answering()) as (client, _):
        ends: list[int] = []

        def follow(exchange: Exchange) -> Iterator[Planned]:
            ends.append(exchange.end_ns)
            if len(ends) < 3:
                yield Planned(exchange.end_ns + 5_000_000, REQUEST, "retry", 1, 1, len(ends))

        done = client.run(planned(client), follow)
        assert [each.planned.position for each in done] == [0, 1, 2]
        assert all(b.sent_ns >= a.end_ns + 5_000_000 for a, b in itertools.pairwise(done))


def test_a_large_reply_is_read_whole() -> None:
    body = b"x" * 3_000_000
    with client_of(answering(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))) as (client, _):
        assert client.run(planned(client))[0].body == body


def test_a_large_request_is_sent_whole() -> None:
    size = 4_000_000
    got: list[int] = []

    def count(connection: socket.socket) -> None:
        total = 0
        while total < size:
            total += len(connection.recv(1 << 20))
            time.sleep(0.001)
        got.append(total)
        connection.sendall(OK)

    with client_of(count) as (client, _):
        assert client.run(planned(client, payload=b"y" * size))[0].whole
        assert got == [size]


def test_silence_ends_with_the_timeout() -> None:
    with client_of(lambda connection: time.sleep(2), timeout_s=0.1) as (client, _):
        assert client.run(planned(client))[0].error == "timeout"


def test_a_connection_that_breaks_is_a_failed_exchange() -> None:
    with client_of(lambda connection: connection.recv(1) and None) as (client, _):
        exchange = client.run(planned(client))[0]
        assert exchange.error in ("closed", "reset")
        assert not exchange.whole


def test_an_aborted_request_resets_its_connection() -> None:
    gone = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n123")
        try:
            connection.recv(1)
        except ConnectionResetError:
            gone.set()

    with client_of(serve) as (client, _):
        client.run(planned(client), until=lambda: all(each.pieces for each in client.in_flight.values()))
        client.abort(list(client.in_flight.values()))
        assert gone.wait(30)
        assert client.in_flight == {}


def test_a_rest_before_a_request_is_no_lateness_in_reading_its_reply() -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            await reader.read(65536)
            writer.write(OK)

    machine = Machine(lambda: at_once)
    client = LoadClient(Endpoint("here", 1, tls=False), 1.0, machine.clock, machine)
    client.run(planned(client))
    machine.sleep(1.0)
    assert client.run(planned(client))[0].lag_ns < 1_000_000
    client.close()
    machine.close()


def test_nobody_there_is_a_typed_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = LoadClient(Endpoint("127.0.0.1", port, tls=False), 1.0)
    with pytest.raises(TargetError, match="cannot be reached"):
        client.prepare(1)
    client.close()


def test_the_clients_own_lateness_is_measured_before_anything_is_sent() -> None:
    late = timer_lag_us(time.monotonic_ns, 5)
    assert len(late) == 5
    assert all(each >= 0 for each in late)
