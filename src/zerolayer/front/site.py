"""What all connections of one listener share: limits, clocks, accounts, and the headers that every reply carries."""

from __future__ import annotations

import secrets
from asyncio import Transport
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from zerolayer.front._native import RequestIds
from zerolayer.front.common_headers import OWN_ID_BYTES, CommonHeaders
from zerolayer.front.outbox import Outbox
from zerolayer.front.receipt import Books
from zerolayer.front.turns import Turns
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.metrics import Metrics
from zerolayer.wire import http1_reply, http2_reply
from zerolayer.wire.http1_memory import HeadMemory

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

    def hold(self, *, held: bool) -> None:
        """Read nothing: what the client sends waits in the kernel, for this process or the next one."""

    def movable(self) -> Transport | None:
        """What another process could go on with from here on; None while this one has to."""

    @property
    def waits_to_move(self) -> bool:
        """Whether it will be movable once its reply is complete, if nothing more is read until then."""

    def close(self) -> None:
        """Give the kernel what was written, then close."""

    def cut(self) -> None:
        """Reset the connection now."""


def new_ids() -> RequestIds:
    """Names for requests that bring none: a random start per process, then counted, so that they never repeat."""
    return RequestIds(secrets.token_hex((OWN_ID_BYTES - 8) // 2).encode("ascii"))


@dataclass(frozen=True, slots=True)
class Site:
    """One listener's constants. ``load`` renders ``x-zl-load``; ``origins`` are the browser pages that may call.

    ``http1`` and ``http2`` are the headers of every reply in these protocols, ``turns`` says what begins when.
    """

    limits: ConnectionLimits
    clock_ns: Callable[[], int]
    wall_s: Callable[[], float]
    version: str
    load: Callable[[], bytes]
    metrics: Metrics
    glue: GlueMeter
    origins: frozenset[bytes] = frozenset()
    books: Books | None = None  # where requests are written down
    ids: RequestIds = field(default_factory=new_ids)
    outbox: Outbox = field(default_factory=Outbox)
    heads: HeadMemory = field(default_factory=HeadMemory)
    http1: CommonHeaders = field(init=False)
    http2: CommonHeaders = field(init=False)
    turns: Turns = field(init=False)

    def __post_init__(self) -> None:
        for name, spell in (("http1", http1_reply.header), ("http2", http2_reply.header)):
            common = CommonHeaders(spell, self.version, self.wall_s, self.load, self.origins)
            object.__setattr__(self, name, common)
        object.__setattr__(self, "turns", Turns(self.clock_ns))
