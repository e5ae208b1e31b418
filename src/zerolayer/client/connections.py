"""The connections of one client: HTTP/2 where a server speaks it, at most eight to each; HTTP/1.1 for the others.

Over TLS the handshake tells (ALPN). Without TLS only who has said that it is a zerolayer server is spoken to in HTTP/2
(prior knowledge, RFC 9113 section 3.3): the first request goes over HTTP/1.1, and its reply says who answers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from zerolayer.client import http1_connection
from zerolayer.client.address import Address, Patience
from zerolayer.client.errors import NotReachable
from zerolayer.client.exchange import Exchange
from zerolayer.client.http2_connection import Http2Connection, speaks_http2

CONNECTIONS: Final = 8  # to one server
SPREAD: Final = 32  # exchanges on a connection before another one is opened


@dataclass(frozen=True)
class Life:
    """Seconds in which a connection must come about, and after which one that gives no sign of life is given up."""

    connect_within_s: float = 3.0
    dead_after_s: float | None = 4.0


class Connections:
    """``tls`` replaces the system's trusted authorities. ``http2``: whether to speak it; None: where that is known.

    ``life`` says how long a connection may take to come about, and when one is dead. All methods run on one event loop;
    connections of a loop that has ended are forgotten.
    """

    def __init__(self, tls: ssl.SSLContext | None, http2: bool | None, life: Life | None = None) -> None:
        self._life = life or Life()
        self._tls = tls
        self._http2 = http2 if http2 is not None or speaks_http2() else False
        self._known: set[Address] = set()
        self._pools: dict[Address, _Pool] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def knows(self, address: Address) -> None:
        """A server without TLS has said that it is zerolayer."""
        if self._http2 is None:
            self._known.add(address)

    async def send(
        self, address: Address, method: str, path: str, headers: Mapping[str, str], body: bytes, patience: Patience
    ) -> Exchange:
        """Ask; return when the reply's head is there.

        Raises ``NotReachable``, ``BadReply``, ``DeadlinePassed``. Cancelled, it leaves the server's slot.
        """
        secure = address.scheme == "https"
        if self._http2 is False or not (secure or self._http2 or address in self._known):
            request = address.request(method, path, headers, body)
            tls = self._context() if secure else None
            return await http1_connection.send(address, request, patience, tls, self._life.connect_within_s)
        pool = self._pool(address)
        connection = await pool.connection(patience)
        if isinstance(connection, Http2Connection):
            fields = address.fields(method, path, headers, body)
            return await connection.exchange(address, fields, body, patience)
        return await http1_connection.exchange(
            address, address.request(method, path, headers, body), patience, *connection
        )

    def forget(self, addresses: Iterable[Address]) -> None:
        """These servers are no more; nothing is under way there."""
        for address in addresses:
            self._known.discard(address)
            if (pool := self._pools.pop(address, None)) is not None:
                pool.close()

    def close(self) -> None:
        """Close all that are open."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def abandon(self) -> None:
        """Their client was thrown away, perhaps on another thread: close them on their loop, if that still runs."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.close)

    def _pool(self, address: Address) -> _Pool:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._pools.clear()
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools[address] = _Pool(
                address, self._context() if address.scheme == "https" else None, self._life
            )
        return pool

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        if self._http2 is not False:
            self._tls.set_alpn_protocols(["h2"] if self._http2 else ["h2", "http/1.1"])
        return self._tls


Plain = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Pool:
    """The connections to one server."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, life: Life) -> None:
        self._life = life
        self._address = address
        self._tls = tls
        self._connections: list[Http2Connection] = []
        self._opening = asyncio.Lock()
        self._room = asyncio.Event()

    async def connection(self, patience: Patience) -> Http2Connection | Plain:
        """The one with the fewest exchanges, or a new one; of HTTP/1.1 always a new one."""
        while True:
            if (found := self._best(SPREAD)) is not None:
                return found
            await self._turn(patience)
            try:
                if (found := self._best(SPREAD)) is not None:
                    return found
                if len(self._connections) < CONNECTIONS:
                    return await self._open(patience)
            finally:
                self._opening.release()
            if (found := self._best(1 << 31)) is not None:
                return found
            self._room.clear()
            try:
                async with asyncio.timeout(patience.left_s()):
                    await self._room.wait()
            except TimeoutError:
                patience.left_s()  # says so where it was the deadline
                raise NotReachable(f"All connections to {self._address} were full for too long.") from None

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def _turn(self, patience: Patience) -> None:
        """Take ``_opening``. Whoever waits for another one's attempt waits no longer than for his own."""
        try:
            async with asyncio.timeout(patience.at_most(self._life.connect_within_s).left_s()):
                await self._opening.acquire()
        except TimeoutError as error:
            patience.left_s()  # says so where it was the deadline
            raise self._address.unreachable(error) from None

    def _best(self, most: int) -> Http2Connection | None:
        self._connections = [each for each in self._connections if each.open]
        usable = [each for each in self._connections if each.has_room and each.streams < most]
        return min(usable, key=lambda each: each.streams) if usable else None

    async def _open(self, patience: Patience) -> Http2Connection | Plain:
        address = self._address
        http2 = Http2Connection(self._room.set, self._life.dead_after_s)
        reader = asyncio.StreamReader()
        chooser = _Chooser(http2, asyncio.StreamReaderProtocol(reader))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(patience.at_most(self._life.connect_within_s).left_s()):
                transport, _ = await loop.create_connection(lambda: chooser, address.host, address.port, ssl=self._tls)
        except OSError as error:
            if isinstance(error, TimeoutError):
                patience.left_s()  # says so where it was the deadline
            raise address.unreachable(error) from None
        if chooser.chosen is http2:
            self._connections.append(http2)
            return http2
        return reader, asyncio.StreamWriter(transport, chooser.http1, reader, loop)


class _Chooser(asyncio.Protocol):
    """Hands a new connection to the protocol that the handshake agreed on, before a byte of it is read."""

    def __init__(self, http2: Http2Connection, http1: asyncio.StreamReaderProtocol) -> None:
        self.http1 = http1
        self.chosen: asyncio.Protocol | None = None
        self._http2 = http2

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.chosen = self._http2 if tls is None or tls.selected_alpn_protocol() == "h2" else self.http1
        if isinstance(transport, asyncio.Transport):
            transport.set_protocol(self.chosen)
        self.chosen.connection_made(transport)
