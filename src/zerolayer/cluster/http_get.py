"""GET over one connection of HTTP/1.1, each reply within a time that is given. Blocking; standard library only.

``http.client`` bounds every single read, so a server that sends a byte now and then would be listened to for ever.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FAILURES: Final = (OSError, ValueError, RecursionError, http.client.HTTPException)
"""What a conversation with anybody may raise, decoding of what was said included."""


@dataclass(frozen=True)
class Reply:
    """``headers`` have lower case names; of several of one name the last one counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TooLarge(ValueError):
    """The body is larger than was asked for."""


class Connection:
    """To ``base``, an ``http(s)://host:port``. It connects with the first question and stays open until ``close``.

    ``clock_s`` is monotonic. Raises ``ValueError`` for a port that is none. One thread at a time.
    """

    def __init__(
        self, base: str, tls: ssl.SSLContext | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.base = base
        where = urlsplit(base)
        host, port = where.hostname or "", where.port
        self._http: Any  # the types of http.client leave out the class of its replies
        if where.scheme == "https":
            self._http = http.client.HTTPSConnection(host, port, context=tls)
        else:
            self._http = http.client.HTTPConnection(host, port)
        self._clock_s = clock_s

    def get(self, path: str, headers: Mapping[str, str], most_bytes: int, end_s: float) -> Reply:
        """What ``GET path`` gives, if it is there by ``end_s``, a time of the clock. Raises one of ``FAILURES``.

        After an error the connection is of no use.
        """
        left_s = partial(_left_s, end_s, self._clock_s)
        connection = self._http
        connection.timeout = left_s()
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(left_s())
        connection.response_class = partial(_response, left_s)
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        body = reply.read(most_bytes + 1)
        if len(body) > most_bytes:
            raise TooLarge
        if reply.length:
            raise http.client.IncompleteRead(body, reply.length)
        return Reply(reply.status, {name.lower(): value for name, value in reply.headers.items()}, body)

    def close(self) -> None:
        """Idempotent."""
        self._http.close()


class _Timed(io.RawIOBase):
    """What a socket receives, while there is time."""

    def __init__(self, connection: socket.socket, left_s: Callable[[], float]) -> None:
        self._connection = connection
        self._received = connection.makefile("rb", buffering=0)  # the socket lives as long as this
        self._left_s = left_s

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int | None:
        self._connection.settimeout(self._left_s())
        return self._received.readinto(into)

    def close(self) -> None:
        self._received.close()
        super().close()


@dataclass(frozen=True)
class _Opened:
    """The only thing that ``http.client.HTTPResponse`` asks of a socket."""

    connection: socket.socket
    left_s: Callable[[], float]

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - it is "rb"
        return io.BufferedReader(_Timed(self.connection, self.left_s))


def _response(left_s: Callable[[], float], connection: socket.socket, method: str) -> http.client.HTTPResponse:
    opened: Any = _Opened(connection, left_s)
    return http.client.HTTPResponse(opened, method=method)


def _left_s(end_s: float, clock_s: Callable[[], float]) -> float:
    """Raises ``TimeoutError``."""
    left_s = end_s - clock_s()
    if left_s <= 0:
        raise TimeoutError
    return left_s
