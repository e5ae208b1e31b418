"""What all connections of one listener share: limits, clocks, accounts, and the headers that every reply carries."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import msgspec

from zerolayer.front.receipt import Books
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics
from zerolayer.wire.http1 import Head

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_ALLOW_ORIGIN = b"access-control-allow-origin"
_EXPOSED = (
    b"x-request-id, request-id, x-server-time, x-zl-load, x-zl-truncated, x-zl-deadline-ms, x-zl-age-ms, x-zl-stale, "
    b"x-zl-ticket, x-zl-peers, x-zl-cache, server-timing, retry-after, retry-after-ms, x-should-retry, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)

Header = tuple[bytes, bytes]


class ConnectionLimits(msgspec.Struct, frozen=True):
    """What one connection may cost. Times in nanoseconds, sizes in bytes."""

    head_bytes: int = 65_536
    body_bytes: int = 1 << 20
    unsent_bytes: int = 262_144  # a client that reads more slowly than its stream grows is cut beyond this
    head_ns: int = 10_000_000_000  # first byte to complete head
    body_ns: int = 60_000_000_000  # complete head to complete body
    idle_ns: int = 60_000_000_000  # no request in progress
    stall_ns: int = 30_000_000_000  # no byte taken by a client that has a full buffer of ours
    linger_ns: int = 2_000_000_000  # after an early refusal, for the client to read it


class Peer(Protocol):
    """A connection, whatever it speaks, as its listener and the sweep see it."""

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or its answer is not wholly with the kernel."""

    def expire(self, now_ns: int) -> None:
        """End what has taken too long."""

    def drain(self) -> None:
        """Finish what is being answered, and take no more."""

    def close(self) -> None:
        """Give the kernel what was written, then close."""

    def cut(self) -> None:
        """Reset the connection now."""


class RequestIds:
    """Names for requests that bring none: a random start per process, then counted, so that they never repeat."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._count = itertools.count(1)

    def of(self, head: Head) -> str:
        """The client's own ``x-request-id`` when it is at most 128 visible ASCII characters, else a new one."""
        given = head.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode("ascii")
        return self.new()

    def new(self) -> str:
        """A name that no other request of this process has."""
        return f"{self._prefix}{next(self._count):08x}"


@dataclass(frozen=True, slots=True)
class Site:
    """One listener's constants. ``load`` renders ``x-zl-load``; ``origins`` are the browser pages that may call."""

    limits: ConnectionLimits
    clock_ns: Callable[[], int]
    wall_s: Callable[[], float]
    version: str
    load: Callable[[], bytes]
    metrics: Metrics
    glue: GlueMeter
    origins: frozenset[bytes] = frozenset()
    books: Books | None = None  # where requests are written down
    ids: RequestIds = field(default_factory=RequestIds)

    def headers(self, request_id: str, origin: bytes | None = None) -> list[Header]:
        """The headers of every reply; ``origin`` is what the request's header of that name said."""
        headers = [
            (b"server", _server(self.version)),
            (b"x-server-time", b"%.6f" % self.wall_s()),
            (b"x-request-id", request_id.encode("ascii")),
            (b"x-zl-load", self.load()),
        ]
        if self.origins:
            headers.append((b"vary", b"origin"))
            if origin is not None and origin in self.origins:
                headers += ((_ALLOW_ORIGIN, origin), (b"access-control-expose-headers", _EXPOSED))
        return headers


@lru_cache(1)
def _server(version: str) -> bytes:
    return b"zerolayer/" + version.encode()
