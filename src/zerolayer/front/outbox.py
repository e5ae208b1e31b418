"""Who has something to write when all replies of this turn of the loop are made."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from zerolayer.front._native import send_each

MANY: Final = 32
"""Writers from which on one call is cheaper: who lets go of the lock may wait until the step thread gives it back."""


class Writer(Protocol):
    """A connection."""

    @property
    def descriptor(self) -> int:
        """Of its socket, where what is written is what the client reads; else -1."""

    def flush(self) -> None:
        """Give the transport what was collected."""

    def take(self) -> bytes:
        """What was collected, if the kernel may have it; what may not go past the transport is given to that."""

    def write(self, data: bytes) -> None:
        """Give this to the transport."""


class Outbox:
    """Makes first and writes then: a step's tokens are rendered for all connections before the first one is sent.

    A write runs through so much of the kernel that our own code and data leave the processor's nearest caches. Between
    each two tokens that cost more than to make one (``bench/front.py``).

    Many are written in one call, which goes past their transports and lets go of the interpreter's lock. What a
    transport has not written yet is never overtaken, and what the kernel does not take goes to the transport, with all
    that follows from it.
    """

    def __init__(self) -> None:
        self._behind: list[Writer] = []

    def add(self, writer: Writer, loop: asyncio.AbstractEventLoop) -> None:
        """Flush ``writer`` in the next turn of ``loop``, which is the same in every call."""
        if not self._behind:
            loop.call_soon(self._flush)
        self._behind.append(writer)

    def _flush(self) -> None:
        behind, self._behind = self._behind, []
        if len(behind) < MANY:
            for writer in behind:
                writer.flush()
            return
        writers, descriptors, pieces = [], [], []
        for writer in behind:
            piece = writer.take()
            if piece:
                writers.append(writer)
                descriptors.append(writer.descriptor)
                pieces.append(piece)
        for place, sent in send_each(descriptors, pieces):
            writers[place].write(pieces[place][sent:])
