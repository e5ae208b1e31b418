"""What a load client stands on: connections, and the wait for them. Tests give it a network of their own."""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Endpoint:
    """Where to connect, and whether by HTTP/2: over TLS by ALPN, else with prior knowledge (RFC 9113 section 3)."""

    host: str
    port: int
    tls: bool
    http2: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class Poll(Protocol):
    """What is used of ``select.epoll``: descriptors and masks; ``poll`` waits for ``timeout`` seconds at most."""

    def register(self, fd: int, eventmask: int, /) -> None: ...

    def modify(self, fd: int, eventmask: int, /) -> None: ...

    def unregister(self, fd: int, /) -> None: ...

    def poll(self, timeout: float, /) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Opens connections and tells which of them can be read."""

    def connect(self, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        """A blocking stream without TLS. Raises ``OSError``."""

    def poll(self) -> Poll:
        """A set of descriptors to wait for."""


class SystemNetwork:
    """The kernel's TCP."""

    def connect(self, endpoint: Endpoint, timeout_s: float) -> socket.socket:
        """Connect without Nagle's delay. Raises ``OSError``."""
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def poll(self) -> Poll:
        """``select.epoll``."""
        return select.epoll()
