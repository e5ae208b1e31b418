"""Transports of clients that speak in clear over TCP, as asyncio defines them, at a third of what the loop's own cost.

All of a loop are watched by one epoll instance (``native/front_sockets.hpp``). What came to many of them is read in one
call, and what is written meanwhile goes to the kernel when all are read, or many have an answer, in one system call
where it has a ring for us. A reply that leaves by itself wakes its client, which takes the core from the loop before
the next one is written: where 64 came at once that took twice as long until the last of them had its answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from zerolayer.front._native import Sockets, send_now
from zerolayer.front.outbox import MANY, TOGETHER

AT_ONCE: Final = 24
"""Replies that are gathered at most: who came first has waited longest, and should not wait for all who came later."""
_FULL_BYTES: Final = 65_536  # unsent: the protocol is told to wait, as asyncio's own transports do
_ROOM_BYTES: Final = 16_384  # and to go on


class PlainSockets:
    """The transports of one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.watched = Sockets(PlainTransport)
        self._transports: dict[int, PlainTransport] = {}
        self.gathering = False  # some are being read
        self.gathered: list[PlainTransport] = []  # those that have something to send when all are read
        self._stopped = False
        loop.add_reader(self.watched.fileno(), self._look)

    def open(self, descriptor: int, address: str, make: Callable[[], asyncio.Protocol]) -> None:
        """A connection of a socket that was accepted. Raises ``OSError``; the socket is closed then."""
        try:
            self.watched.add(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._transports[descriptor] = transport = PlainTransport(self, descriptor, address)
        transport.begin(make())

    def accept(
        self, listening: int, most: int, room: int, make: Callable[[str, bytes], asyncio.Protocol]
    ) -> tuple[list[int], int]:
        """Accept at most so many, and begin a connection with each while there is ``room``. The others are returned.

        ``make`` gets the address and the first words of each. The second result is that of ``Sockets.accept``. A defect
        in what it makes of those costs its own connection.
        """
        self.gathering = True
        try:
            self.watched.look(self._transports)  # who came before comes first
            found, error = self.watched.accept(listening, most, room)
            for descriptor, address, said in found[:room]:
                self._transports[descriptor] = transport = PlainTransport(self, descriptor, address)
                transport.begin(make(address, said))
                if said:
                    transport.told(said)
        finally:
            self.gathering = False
            self.send()
        return [descriptor for descriptor, _, _ in found[room:]], error

    def stop(self) -> None:
        """Nobody comes any more; those who are there stay."""
        self._stopped = True
        self._close()

    def forget(self, descriptor: int) -> None:
        """Its transport has closed it."""
        del self._transports[descriptor]
        self._close()

    def _close(self) -> None:
        if self._stopped and not self._transports:
            self.loop.remove_reader(self.watched.fileno())
            self.watched.close()

    def _look(self) -> None:
        self.gathering = True
        try:
            self.watched.look(self._transports)
        finally:
            self.gathering = False
            self.send()

    def send(self) -> None:
        """What was gathered."""
        gathered, self.gathered = self.gathered, []
        if len(gathered) < TOGETHER:
            for each in gathered:
                each.send()
            return
        for place, sent in self.watched.send(gathered, MANY):
            gathered[place].left(sent)


class PlainTransport(asyncio.Transport):
    """Of one socket. What is closed is closed in a turn of its own, and until then its descriptor is its own."""

    __slots__ = (
        "_address", "_closing", "_ending", "_full", "_leaving", "_protocol", "_reads", "_socket", "_sockets", "_unsent",
        "_writes", "descriptor", "piece", "receive", "unread",
    )  # fmt: skip

    def __init__(self, sockets: PlainSockets, descriptor: int, address: str) -> None:
        self._sockets = sockets
        self.descriptor = descriptor
        self._address = address
        self.piece = b""  # what is sent when all have been read
        self.unread = b""  # what was read already when the protocol asked to be told nothing more
        self._unsent = bytearray()  # what the kernel had no room for
        self._closing = False  # nothing is read or written any more, but for what is unsent
        self._ending = False  # nothing is written any more
        self._full = False  # the protocol was told to wait
        self._leaving = False  # its last turn is to come
        self._reads, self._writes = True, False  # what is watched for
        self._socket: socket.socket | None = None

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Tell it that it is connected, and hand it what comes."""
        self._protocol = protocol
        self.receive: Callable[[bytes], None] | None = protocol.data_received  # None: nothing is read
        protocol.connection_made(self)

    # What asyncio defines.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``socket`` and ``peername``, without its port."""
        if name == "socket":
            if self._socket is None:
                self._socket = socket.socket(fileno=self.descriptor)
            return self._socket
        return (self._address, 0) if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)
        if self.receive is not None:
            self.receive = self._reader()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reads and not self._closing

    def pause_reading(self) -> None:
        if not self._closing:
            self._watch(reads=False)

    def resume_reading(self) -> None:
        if not self._closing:
            self._watch(reads=True)
            if self.unread:
                self._sockets.loop.call_soon(self._hand_on)

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) + len(self.piece)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._ending:
            return
        if self._unsent:
            self._keep(data)
        elif self._sockets.gathering:
            if not self.piece:
                self._sockets.gathered.append(self)
            self.piece += data
            if len(self.piece) > _FULL_BYTES:
                self.send()
            elif len(self._sockets.gathered) >= AT_ONCE:
                self._sockets.send()
        else:
            self._offer(data if isinstance(data, bytes) else bytes(data))

    def send(self) -> None:
        """What was gathered."""
        if self.piece:
            piece, self.piece = self.piece, b""
            self._offer(piece)

    def left(self, sent: int) -> None:
        """The kernel took so much of what was gathered, and no more."""
        piece, self.piece = self.piece, b""
        self._keep(piece[sent:])

    def _offer(self, data: bytes) -> None:
        sent = send_now(self.descriptor, data)
        if sent < 0:
            self.failed(-sent)
        elif sent < len(data):
            self._keep(data[sent:])

    def _keep(self, data: bytes | bytearray | memoryview) -> None:
        """Until the kernel has room, or says what is wrong."""
        self._unsent += data
        self._watch(writes=True)
        if len(self._unsent) > _FULL_BYTES and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not (self._ending or self._closing):
            self.send()
            self._ending = True
            if not self._unsent:
                self._end()

    def close(self) -> None:
        self.send()
        if not self._closing:
            self._closing = True
            self._watch(reads=False)
            if not self._unsent:
                self._leave(None)

    def abort(self) -> None:
        self._cut(None)

    # What the look at the sockets calls.

    def told(self, data: bytes) -> None:
        """What the client has said, told as the look at the sockets does."""
        if self.receive is None:
            self.put_back(data)
            return
        try:
            self.receive(data)
        except Exception as error:  # noqa: BLE001 - a connection's defect costs that connection
            self.broken(error)

    def put_back(self, data: bytes) -> None:
        """It was read together with what came to others, and one of these has led to a pause meanwhile."""
        if not self._closing:
            self.unread += data

    def ended(self) -> None:
        """The client sends nothing more."""
        self._hand_on()
        if self._closing:
            return
        if self._protocol.eof_received():
            self._watch(reads=False)
        else:
            self.close()

    def failed(self, number: int) -> None:
        """The connection is broken, as the error ``number`` says."""
        self._cut(OSError(number, os.strerror(number)))

    def writable(self) -> None:
        """The kernel has room again."""
        sent = send_now(self.descriptor, bytes(self._unsent))
        if sent < 0:
            self.failed(-sent)
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._watch(writes=False)
            if self._closing:
                self._leave(None)
            elif self._ending:
                self._end()
        if self._full and len(self._unsent) <= _ROOM_BYTES and not self._closing:
            self._full = False
            self._protocol.resume_writing()

    def broken(self, error: Exception) -> None:
        """The protocol failed at what it was told."""
        told = {"message": "a connection was cut", "exception": error, "transport": self, "protocol": self._protocol}
        self._sockets.loop.call_exception_handler(told)
        self._cut(error)

    def _reader(self) -> Callable[[bytes], None]:
        return self._behind_unread if self.unread else self._protocol.data_received

    def _behind_unread(self, data: bytes) -> None:
        unread, self.unread = self.unread, b""
        self.receive = self._protocol.data_received
        self.receive(unread + data)

    def _hand_on(self) -> None:
        """Nothing else came since reading goes on."""
        if self.receive is not None and self.unread:
            self.told(b"")

    def _watch(self, *, reads: bool | None = None, writes: bool | None = None) -> None:
        was = self._reads or self._writes
        reads, writes = self._reads if reads is None else reads, self._writes if writes is None else writes
        if (reads, writes) != (self._reads, self._writes):
            self._sockets.watched.watch(self.descriptor, was, reads, writes)
            self._reads, self._writes = reads, writes
            self.receive = self._reader() if reads else None

    def _end(self) -> None:
        try:
            self.get_extra_info("socket").shutdown(socket.SHUT_WR)
        except OSError as error:
            self._cut(error)

    def _cut(self, error: Exception | None) -> None:
        if not self._leaving:
            self._closing = True
            self.piece = self.unread = b""
            self._unsent.clear()
            self._watch(reads=False, writes=False)
            self._leave(error)

    def _leave(self, error: Exception | None) -> None:
        self._leaving = True
        self._sockets.loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        if self._socket is not None:
            self._socket.detach()
        os.close(self.descriptor)
        self._sockets.forget(self.descriptor)
        protocol = self._protocol
        del self._protocol  # else both are left to the garbage collector
        protocol.connection_lost(error)
