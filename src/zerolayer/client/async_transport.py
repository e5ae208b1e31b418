"""One HTTP exchange over asyncio's streams: a reply whose head is there, or a typed error."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from zerolayer.client.address import Address, Patience
from zerolayer.client.errors import BadReply
from zerolayer.client.http1 import ReplyReader

READ_BYTES: Final = 1 << 16
REPLY_BYTES: Final = 1 << 24  # a reply that is not a stream


class AsyncExchange:
    """A reply whose body is still to be read, with the connection that it comes on."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: ReplyReader, first: bytes
    ) -> None:
        self.reply = reply
        self._reader = reader
        self._writer = writer
        self._first = first

    async def read(self, patience: Patience) -> bytes:
        """The next piece of the body; empty at its end.

        Raises OSError, ``BrokenReply`` for a body that breaks off, ``DeadlinePassed``.
        """
        piece, self._first = self._first, b""
        while not piece and not self.reply.complete:
            data = await _receive(self._reader, patience)
            if not data:
                self.reply.end()
            piece = self.reply.push(data)
        return piece

    async def read_all(self, patience: Patience) -> bytes:
        """The whole body. Closes the exchange. Raises ``BadReply``, ``DeadlinePassed``."""
        body = bytearray()
        try:
            while piece := await self.read(patience):
                body += piece
                if len(body) > REPLY_BYTES:
                    raise BadReply(f"The reply is larger than {REPLY_BYTES} bytes.")
        except OSError as error:
            raise BadReply(f"The reply broke off ({type(error).__name__}).") from None
        finally:
            self.close()
        return bytes(body)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._writer.close()


async def send(address: Address, request: bytes, patience: Patience, tls: ssl.SSLContext | None) -> AsyncExchange:
    """Send one request on a connection of its own; return when the reply's head is there.

    Raises ``NotReachable``, ``BadReply``, ``DeadlinePassed``. Cancelled, it closes the connection.
    """
    context = (tls or ssl.create_default_context()) if address.scheme == "https" else None
    try:
        async with asyncio.timeout(patience.left_s()):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except OSError as error:
        raise address.unreachable(error) from None
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
    return AsyncExchange(reader, writer, reply, first)


async def _receive(reader: asyncio.StreamReader, patience: Patience) -> bytes:
    try:
        async with asyncio.timeout(patience.left_s()):
            return await reader.read(READ_BYTES)
    except TimeoutError:
        patience.left_s()  # says so where it was the deadline
        raise
