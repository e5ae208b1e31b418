"""Transports over TCP without TLS: what asyncio promises of a transport, on real sockets and the loop that serves."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import weakref

import pytest
from plain_protocols import MUCH, Noted

from zerolayer.front.plain import PlainSockets


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
