"""What many clients that are read in one look are told: it leaves together, and each has what is its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import socket
from collections.abc import Callable

import pytest
from plain_protocols import MUCH, Noted

from zerolayer.front import plain
from zerolayer.front._native import Sockets
from zerolayer.front.moving import is_plain
from zerolayer.front.plain import PlainSockets, PlainTransport


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


def test_who_came_first_does_not_wait_for_all_who_came_later(run, ring):
    async def test() -> None:
        answered: list[int] = []

        def look(_: PlainTransport) -> None:
            answered.append(len(select.select(crowd.clients, [], [], 0)[0]))

        crowd = Crowd([Answering(b"answer", then=look) for _ in range(64)])
        assert await crowd.close() == [b"answer"] * 64
        assert answered == [number // plain.AT_ONCE * plain.AT_ONCE for number in range(1, 65)]

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


@pytest.mark.parametrize("end", ["resumes", "says no more", "ends", "closes", "fails"])
def test_what_was_read_of_one_whom_another_one_pauses_is_told_when_it_reads_again_and_not_before(run, end):
    async def test() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told["exception"]))
        pauses = Answering(b"answer", then=lambda _: paused.transport.pause_reading())
        paused = Noted()
        crowd = Crowd([pauses])
        client, accepted = socket.socketpair()
        for each in (client, accepted):
            each.setblocking(False)
        crowd.sockets.open(accepted.detach(), "10.0.0.1", lambda: paused)
        client.send(b"question")
        assert await crowd.close() == [b"answer"]
        await asyncio.sleep(0.02)
        assert (paused.told, is_plain(paused.transport)) == (["made"], False)
        paused.fails = end == "fails"
        if end == "closes":
            paused.transport.close()
        if end != "says no more":
            client.send(b", and another")
        if end == "ends":
            client.shutdown(socket.SHUT_WR)
        paused.transport.resume_reading()
        await _until(lambda: len(paused.told) > 1)
        if end in ("resumes", "says no more"):
            said = b"question, and another" if end == "resumes" else b"question"
            await _until(lambda: b"".join(paused.told[1:]) == said)
            paused.transport.close()
        await _until(lambda: not isinstance(paused.told[-1], str | bytes))
        if end == "ends":
            assert (b"".join(paused.told[1:-2]), paused.told[-2:]) == (b"question, and another", ["ended", None])
        elif end == "fails":
            assert [type(each) for each in (*complaints, paused.told[-1])] == [ValueError, ValueError]
        elif end == "closes":
            assert paused.told == ["made", None]
        client.close()
        await asyncio.sleep(0.01)

    run(test)
