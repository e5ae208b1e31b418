"""Transports over TCP without TLS: what asyncio promises of a transport, on real sockets and the loop that serves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import socket
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from zerolayer.front import plain
from zerolayer.front._native import Sockets
from zerolayer.front.plain import PlainSockets, PlainTransport

MUCH = bytes(range(256)) * 16_384  # 4 MB: more than the kernel holds for a client that does not read


class Noted(asyncio.Protocol):
    """Writes down what it is told; ``fails`` at the first bytes."""

    transport: PlainTransport

    def __init__(self, *, keeps: bool = False, fails: bool = False) -> None:
        self.told: list[object] = []
        self.keeps = keeps
        self.fails = fails

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PlainTransport)
        self.transport = transport
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        if self.fails:
            raise ValueError("a defect")
        self.told.append(data)

    def eof_received(self) -> bool:
        self.told.append("ended")
        return self.keeps

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc.errno if isinstance(exc, OSError) else exc)

    def pause_writing(self) -> None:
        self.told.append("full")

    def resume_writing(self) -> None:
        self.told.append("room")


class Pair:
    """A client and the transport at the other end."""

    def __init__(self, **how: bool) -> None:
        self.client, accepted = socket.socketpair()
        self.client.setblocking(False)
        accepted.setblocking(False)
        self.sockets = PlainSockets(asyncio.get_running_loop())
        self.protocol = Noted(**how)
        self.descriptor = accepted.detach()
        self.sockets.open(self.descriptor, "10.0.0.1", lambda: self.protocol)
        self.transport = self.protocol.transport

    async def read(self, count: int) -> bytes:
        """What the client reads."""
        found = b""
        while len(found) < count:
            found += await asyncio.get_running_loop().sock_recv(self.client, 1 << 20)
        return found

    async def told(self, *expected: object) -> None:
        """Wait until the protocol was told this, and nothing else."""
        for _ in range(1000):
            if len(self.protocol.told) >= len(expected):
                break
            await asyncio.sleep(0.005)
        assert self.protocol.told == list(expected)


class Answering(Noted):
    """Answers what it is told, and then does ``then`` with its transport, all while others are read."""

    def __init__(self, *answers: bytes, then: Callable[[PlainTransport], None] = lambda _: None) -> None:
        super().__init__()
        self.answers = answers
        self.then = then

    def data_received(self, data: bytes) -> None:
        for answer in self.answers:
            self.transport.write(answer)
        self.then(self.transport)


class Crowd:
    """Clients that all have asked before the loop looks."""

    def __init__(self, protocols: list[Answering]) -> None:
        self.sockets = PlainSockets(asyncio.get_running_loop())
        self.protocols = protocols
        self.clients: list[socket.socket] = []
        for protocol in protocols:
            client, accepted = socket.socketpair()
            for each in (client, accepted):
                each.setblocking(False)
            self.sockets.open(accepted.detach(), "10.0.0.1", lambda made=protocol: made)
            self.clients.append(client)
            client.send(b"question")

    async def close(self) -> list[bytes]:
        """What each client has read until it had its answer, or the end."""
        read = await asyncio.gather(*map(self._read, self.clients, self.protocols))
        for client in self.clients:
            client.close()
        self.sockets.stop()
        await _until(lambda: all(protocol.transport.is_closing() for protocol in self.protocols))
        await asyncio.sleep(0.01)
        return read

    async def _read(self, client: socket.socket, protocol: Answering) -> bytes:
        found = b""
        while len(found) < sum(map(len, protocol.answers)):
            more = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1 << 20), 10)
            if not more:
                break
            found += more
        return found


async def _until(so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if so():
            return
        await asyncio.sleep(0.005)
    pytest.fail("not within five seconds")


@pytest.fixture(params=["one call", "a call each"])
def ring(request, monkeypatch):
    """What many are told leaves in one system call, or the kernel has no ring for that."""

    def without(transport: type[PlainTransport]) -> Sockets:
        free = os.dup(0)
        os.close(free)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))  # that it is readable takes the last one
        try:
            return Sockets(transport)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    if request.param == "a call each":
        monkeypatch.setattr(plain, "Sockets", without)


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    """Runs a test on a loop, and holds it to leave no descriptor behind."""

    def on_loop(test: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await test()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    async def nothing() -> None: ...

    on_loop(nothing)  # the first loop of a process keeps some
    before = _descriptors()
    yield on_loop
    assert _descriptors() == before


def _descriptors() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _close(pair: Pair) -> None:
    pair.client.close()
    pair.sockets.stop()


def test_what_comes_is_told_and_what_is_written_is_sent_at_once(run):
    async def test() -> None:
        pair = Pair()
        pair.client.send(b"question")
        await pair.told("made", b"question")
        pair.transport.write(b"answer")
        assert pair.client.recv(100) == b"answer"  # no turn of the loop later
        assert pair.transport.get_extra_info("peername")[0] == "10.0.0.1"
        pair.client.close()
        await pair.told("made", b"question", "ended", None)
        assert pair.transport.is_closing()
        _close(pair)

    run(test)


def test_many_are_read_in_one_look_and_a_defect_costs_its_own_connection(run):
    async def test() -> None:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(str(told["exception"])))
        sockets = PlainSockets(asyncio.get_running_loop())
        clients, protocols = [], []
        for number in range(200):
            client, accepted = socket.socketpair()
            accepted.setblocking(False)
            protocols.append(Noted(fails=number % 3 == 0))
            sockets.open(accepted.detach(), "10.0.0.1", lambda made=protocols[-1]: made)
            clients.append(client)
            client.send(b"%d" % number)
        for _ in range(1000):
            if all(len(protocol.told) == 2 for protocol in protocols):
                break
            await asyncio.sleep(0.005)
        for number, protocol in enumerate(protocols):
            if number % 3:
                assert protocol.told == ["made", b"%d" % number]
            else:
                assert [type(each) for each in protocol.told] == [str, ValueError]
        assert complaints == ["a defect"] * 67
        for client in clients:
            client.close()
        sockets.stop()
        for _ in range(1000):
            if all(protocol.transport.is_closing() for protocol in protocols):
                break
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)

    run(test)


@pytest.mark.parametrize("count", [1, 3, 4, 40, 200])
def test_what_many_are_told_in_one_look_arrives_in_its_order(run, ring, count):
    async def test() -> None:
        crowd = Crowd([Answering(b"%d" % number, b", ", b"a" * number) for number in range(count)])
        assert await crowd.close() == [b"%d, %b" % (number, b"a" * number) for number in range(count)]

    run(test)


def test_what_many_are_told_leaves_when_all_are_read(run, ring):
    async def test() -> None:
        told: list[bool] = []

        def look(_: PlainTransport) -> None:
            for client in crowd.clients:
                with contextlib.suppress(BlockingIOError):
                    told.append(bool(client.recv(1, socket.MSG_PEEK)))

        crowd = Crowd([Answering(b"answer", then=look) for _ in range(8)])
        assert await crowd.close() == [b"answer"] * 8
        assert told == []

    run(test)


def test_what_the_kernel_does_not_take_of_many_arrives_and_their_protocols_wait_meanwhile(run, ring):
    async def test() -> None:
        crowd = Crowd([Answering(MUCH[:part], MUCH[part:]) for part in (1, 60_000, 70_000, 300_000, 2_000_000)])
        assert await crowd.close() == [MUCH] * 5
        for protocol in crowd.protocols:
            assert protocol.told[1::2][:1] == ["full"]
            assert "room" in protocol.told

    run(test)


@pytest.mark.parametrize("end", [PlainTransport.close, PlainTransport.write_eof])
def test_what_was_written_before_the_end_arrives_where_many_are_told(run, ring, end):
    async def test() -> None:
        crowd = Crowd([Answering(b"the last word", MUCH[: number << 18], then=end) for number in range(6)])
        assert await crowd.close() == [b"the last word" + MUCH[: number << 18] for number in range(6)]

    run(test)


def test_a_client_that_is_cut_or_has_gone_costs_the_others_nothing(run, ring):
    async def test() -> None:
        cut = Answering(b"nothing of this", then=PlainTransport.abort)
        crowd = Crowd([Answering(b"answer"), cut, *(Answering(b"answer") for _ in range(3))])
        gone = crowd.clients[3]
        crowd.clients[3] = gone.dup()
        crowd.clients[3].shutdown(socket.SHUT_RDWR)
        gone.close()
        assert await crowd.close() == [b"answer", b"", b"answer", b"", b"answer"]

    run(test)


def test_what_the_kernel_does_not_take_is_sent_when_it_has_room_and_the_protocol_waits_meanwhile(run):
    async def test() -> None:
        pair = Pair()
        pair.transport.write(MUCH)
        pair.transport.write(bytearray(b"the end"))
        assert 0 < pair.transport.get_write_buffer_size() < len(MUCH) + 7
        await pair.told("made", "full")
        assert await pair.read(len(MUCH) + 7) == MUCH + b"the end"
        await pair.told("made", "full", "room")
        assert pair.transport.get_write_buffer_size() == 0
        pair.client.send(b"still read")
        await pair.told("made", "full", "room", b"still read")
        pair.transport.abort()
        await pair.told("made", "full", "room", b"still read", None)
        _close(pair)

    run(test)


@pytest.mark.parametrize("ends", [False, True], ids=["closed", "ended"])
def test_what_was_written_before_the_end_arrives(run, ends):
    async def test() -> None:
        pair = Pair(keeps=True)
        pair.transport.write(MUCH)
        (pair.transport.write_eof if ends else pair.transport.close)()
        pair.transport.write(b"void")
        assert await pair.read(len(MUCH)) == MUCH
        assert await asyncio.get_running_loop().sock_recv(pair.client, 1) == b""
        if ends:
            pair.client.send(b"more")
            await pair.told("made", "full", "room", b"more")
            pair.transport.close()
            pair.transport.close()
            await pair.told("made", "full", "room", b"more", None)
        else:
            await pair.told("made", "full", None)
        _close(pair)

    run(test)


def test_after_an_abort_nothing_more_is_sent_or_told(run):
    async def test() -> None:
        pair = Pair()
        pair.transport.write(MUCH)
        pair.transport.abort()
        pair.transport.abort()
        pair.transport.close()
        pair.client.send(b"too late")
        await pair.told("made", "full", None)
        with pytest.raises(OSError, match=r"."):
            os.fstat(pair.descriptor)
        _close(pair)

    run(test)


def test_a_client_whose_half_is_closed_is_written_to_where_the_protocol_wants_it(run):
    async def test() -> None:
        pair = Pair(keeps=True)
        pair.client.shutdown(socket.SHUT_WR)
        await pair.told("made", "ended")
        pair.transport.write(b"answer")
        assert await pair.read(6) == b"answer"
        await asyncio.sleep(0.02)
        pair.transport.close()
        await pair.told("made", "ended", None)  # the end was told once
        _close(pair)

    run(test)


def test_nothing_is_read_while_reading_is_paused_and_nothing_is_lost(run):
    async def test() -> None:
        pair = Pair()
        pair.transport.pause_reading()
        pair.transport.pause_reading()
        assert not pair.transport.is_reading()
        pair.client.send(b"later")
        await asyncio.sleep(0.02)
        await pair.told("made")
        pair.transport.resume_reading()
        await pair.told("made", b"later")
        other = Noted()
        pair.transport.set_protocol(other)
        assert pair.transport.get_protocol() is other
        pair.client.send(b"to the other")
        for _ in range(1000):
            if other.told:
                break
            await asyncio.sleep(0.005)
        assert other.told == [b"to the other"]
        pair.transport.abort()
        await asyncio.sleep(0.01)
        _close(pair)

    run(test)


def test_a_paused_connection_that_is_written_to_learns_that_its_client_has_gone(run):
    async def test() -> None:
        pair = Pair()
        pair.transport.pause_reading()
        pair.client.close()
        pair.transport.write(b"nobody reads that")
        await pair.told("made", errno.EPIPE)
        _close(pair)

    run(test)


def test_a_paused_connection_with_bytes_unsent_learns_that_its_client_has_gone(run):
    async def test() -> None:
        pair = Pair()
        pair.transport.write(MUCH)
        pair.transport.pause_reading()
        pair.client.close()
        await pair.told("made", "full", errno.EPIPE)
        _close(pair)

    run(test)


def test_a_connection_that_is_over_is_not_left_to_the_garbage_collector(run):
    async def test() -> None:
        pair = Pair()
        pair.client.close()
        gone = weakref.ref(pair.protocol)
        await pair.told("made", "ended", None)
        pair.sockets.stop()
        gc.disable()
        try:
            del pair
            assert gone() is None
        finally:
            gc.enable()

    run(test)


def test_a_descriptor_that_cannot_be_watched_is_closed(run):
    async def test() -> None:
        sockets = PlainSockets(asyncio.get_running_loop())
        descriptor = os.open(os.devnull, os.O_RDONLY)  # epoll knows no such thing
        with pytest.raises(PermissionError):
            sockets.open(descriptor, "10.0.0.1", Noted)
        with pytest.raises(OSError, match=r"."):
            os.fstat(descriptor)
        sockets.stop()

    run(test)
