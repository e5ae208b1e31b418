"""One exchange of HTTP/1.1 over asyncio's streams, on a connection of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

from zerolayer.client.address import Address, Patience
from zerolayer.client.http1 import ReplyReader

READ_BYTES: Final = 1 << 16


class Http1Exchange:
    """A reply whose body is still to be read, with the connection that it comes on. An ``exchange.Exchange``."""

    trailers: Mapping[str, str] = {}

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: ReplyReader, first: bytes
    ) -> None:
        self._reply = reply
        self._reader = reader
        self._writer = writer
        self._first = first

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def read(self, patience: Patience) -> bytes:
        piece, self._first = self._first, b""
        while not piece and not self._reply.complete:
            data = await _receive(self._reader, patience)
            if not data:
                self._reply.end()
            piece = self._reply.push(data)
        return piece

    def close(self) -> None:
        self._writer.close()


async def send(
    address: Address, request: bytes, patience: Patience, tls: ssl.SSLContext | None, connect_within_s: float
) -> Http1Exchange:
    """Send one request on a connection of its own; return when the reply's head is there.

    Raises ``NotReachable``, ``BadReply``, ``DeadlinePassed``. Cancelled, it closes the connection.
    """
    try:
        async with asyncio.timeout(patience.at_most(connect_within_s).left_s()):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
    except OSError as error:
        if isinstance(error, TimeoutError):
            patience.left_s()  # says so where it was the deadline
        raise address.unreachable(error) from None
    return await exchange(address, request, patience, reader, writer)


async def exchange(
    address: Address, request: bytes, patience: Patience, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Http1Exchange:
    """The same on a connection that is there already."""
    reply = ReplyReader()
    try:
        first = b""
        writer.write(request)
        async with asyncio.timeout(patience.left_s()):
            await writer.drain()
        while not reply.begun:
            data = await _receive(reader, patience)
            if not data:
                raise address.silent()
            first = reply.push(data)
    except OSError as error:
        writer.close()
        raise address.silent(error) from None
    except BaseException:
        writer.close()
        raise
    return Http1Exchange(reader, writer, reply, first)


async def _receive(reader: asyncio.StreamReader, patience: Patience) -> bytes:
    try:
        async with asyncio.timeout(patience.left_s()):
            return await reader.read(READ_BYTES)
    except TimeoutError:
        patience.left_s()  # says so where it was the deadline
        raise
