"""One HTTP exchange over a blocking socket: a reply whose head is there, or a typed error."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Final

from zerolayer.client.address import Address, Patience
from zerolayer.client.errors import BadReply
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
