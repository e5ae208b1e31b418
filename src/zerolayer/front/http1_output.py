"""What a connection of HTTP/1.1 writes: at once, once a turn, or when its client reads again.

A reply that is complete goes to the transport at once. Pieces of a stream are collected, so that all connections that a
step gave a token are written in one call (``outbox.py``). What a client does not read is held up to a limit, beyond
which it is cut.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from functools import cached_property

from zerolayer.front.exchange import NEVER
from zerolayer.front.lines import Outlet, SocketOutlet
from zerolayer.front.moving import plain_descriptor
from zerolayer.front.phase import CLOSED, Phase
from zerolayer.front.site import Site
from zerolayer.wire.http1_reply import chunk

_log = logging.getLogger("zerolayer.front")


class Output(asyncio.Protocol):
    """All methods run on the loop. Nothing is written once the connection's phase is ``CLOSED``."""

    _transport: asyncio.Transport
    # What most connections never change, or not before their first request: many begin at once.
    _phase: Phase = CLOSED
    _behind = b""  # pieces of this turn, not written yet
    _stalled_ns = NEVER  # until when it must read again
    _streams_chunks = False  # the reply that is open

    def __init__(self, site: Site, loop: AbstractEventLoop) -> None:
        self._site = site
        self._loop = loop
        self._limits = site.limits
        self._unsent = bytearray()  # what a client that does not read has not taken; coalesced

    # What asyncio calls.

    def pause_writing(self) -> None:
        self._stalled_ns = self._site.clock_ns() + self._limits.stall_ns

    def resume_writing(self) -> None:
        self._stalled_ns = NEVER
        if self._unsent:
            unsent, self._unsent = bytes(self._unsent), bytearray()
            self._transport.write(unsent)
        if self._stalled_ns == NEVER:  # else that write has filled the buffer again
            self.reads_again()

    # What the outbox calls.

    @cached_property
    def descriptor(self) -> int:
        """As ``outbox.Writer``."""
        return plain_descriptor(self._transport)

    def take(self) -> bytes:
        """As ``outbox.Writer``."""
        if self._stalled_ns != NEVER or self.descriptor < 0 or self._transport.get_write_buffer_size():
            self.flush()
        data, self._behind = self._behind, b""
        return data

    def write(self, data: bytes) -> None:
        """Hand bytes to the kernel, or hold them while the client does not read; beyond the limit the client is cut."""
        if self._phase is CLOSED:
            return
        if self._behind:
            data, self._behind = self._behind + data, b""
        if self._stalled_ns == NEVER:
            self._transport.write(data)
            return
        self._unsent += data
        if len(self._unsent) + self._transport.get_write_buffer_size() > self._limits.unsent_bytes:
            _log.warning("a client that does not read its stream was cut")
            self.cut()

    def cut(self) -> None:
        """Reset the connection now; what was not sent is lost."""
        self._transport.abort()

    # What the exchange calls.

    def send(self, data: bytes) -> None:
        """A further piece of the reply that is open."""
        if self._streams_chunks:
            data = chunk(data)
        if self._behind:
            self._behind += data
        elif self._stalled_ns == NEVER and self._phase is not CLOSED:
            self._behind = data
            self._site.outbox.add(self, self._loop)
        else:
            self.write(data)

    def outlet(self) -> Outlet | None:
        """As ``exchange.Carrier``."""
        return SocketOutlet(self, self._is_clear, chunked=self._streams_chunks) if self.descriptor >= 0 else None

    # What the connection calls.

    def reads_again(self) -> None:
        """The client takes what it did not; for whoever has waited for that."""

    def flush(self) -> None:
        """Write the pieces of this turn."""
        if self._behind:
            self.write(b"")

    def forget(self) -> None:
        """What was not written never will be."""
        self._behind = b""
        self._unsent.clear()

    def _is_clear(self) -> bool:
        return not (self._behind or self._stalled_ns != NEVER or self._transport.get_write_buffer_size())
