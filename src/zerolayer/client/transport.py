"""One exchange of HTTP/1.1 over a blocking socket, for commands that watch one server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from zerolayer.client.address import Address, Patience
from zerolayer.client.errors import BadReply
from zerolayer.client.head import read_head, refused
from zerolayer.client.http1 import ReplyReader

READ_BYTES: Final = 1 << 16
REPLY_BYTES: Final = 1 << 24  # a reply that is not a stream


class Exchange:
    """A reply whose body is still to be read, with the connection that it comes on."""

    def __init__(self, connection: socket.socket, reply: ReplyReader, first: bytes) -> None:
        self.reply = reply
        self._connection = connection
        self._first = first

    def read(self, patience: Patience) -> bytes:
        """The next piece of the body; empty at its end.

        Raises OSError, ``BrokenReply`` for a body that breaks off, ``DeadlinePassed``.
        """
        piece, self._first = self._first, b""
        while not piece and not self.reply.complete:
            data = _receive(self._connection, patience)
            if not data:
                self.reply.end()
            piece = self.reply.push(data)
        return piece

    def read_all(self, patience: Patience) -> bytes:
        """The whole body. Closes the exchange. Raises ``BadReply``, ``DeadlinePassed``."""
        body = bytearray()
        try:
            while piece := self.read(patience):
                body += piece
                if len(body) > REPLY_BYTES:
                    raise BadReply(f"The reply is larger than {REPLY_BYTES} bytes.")
        except OSError as error:
            raise BadReply(f"The reply broke off ({type(error).__name__}).") from None
        finally:
            self.close()
        return bytes(body)

    def lines(self, patience: Patience) -> Iterator[bytes]:
        """The body's lines, each with its line feed, as they come. Raises as ``read`` does."""
        rest = b""
        while piece := self.read(patience):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        self._connection.close()


def send(address: Address, request: bytes, patience: Patience, tls: ssl.SSLContext | None) -> Exchange:
    """Send one request on a connection of its own; return when the reply's head is there.

    Raises ``NotReachable``, ``BadReply``, ``DeadlinePassed``.
    """
    connection = _connect(address, patience, tls)
    reply = ReplyReader()
    try:
        first = b""
        connection.sendall(request)
        while not reply.begun:
            data = _receive(connection, patience)
            if not data:
                raise address.silent()
            first = reply.push(data)
    except OSError as error:
        connection.close()
        raise address.silent(error) from None
    except BaseException:
        connection.close()
        raise
    return Exchange(connection, reply, first)


def get(address: Address, path: str, patience: Patience) -> Exchange:
    """Ask for ``path``; return when the head of a reply of 200 is there. Raises ``Refused``, and as ``send`` does."""
    exchange = send(address, address.request("GET", path, {}, b""), patience, None)
    if exchange.reply.status != 200:
        head = read_head(exchange.reply.status, exchange.reply.headers)
        raise refused(head, exchange.read_all(patience))
    return exchange


def _connect(address: Address, patience: Patience, tls: ssl.SSLContext | None) -> socket.socket:
    connection: socket.socket | None = None
    try:
        connection = socket.create_connection((address.host, address.port), patience.left_s())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.scheme == "https":
            return (tls or ssl.create_default_context()).wrap_socket(connection, server_hostname=address.host)
    except OSError as error:
        if connection is not None:
            connection.close()
        raise address.unreachable(error) from None
    return connection


def _receive(connection: socket.socket, patience: Patience) -> bytes:
    connection.settimeout(patience.left_s())
    try:
        return connection.recv(READ_BYTES)
    except TimeoutError:
        patience.left_s()  # says so where it was the deadline
        raise
