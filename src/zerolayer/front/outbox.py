"""Who has something to write when all replies of this turn of the loop are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from zerolayer.front._native import send_each
from zerolayer.front.defect import log_defect

MANY: Final = 32
"""Pieces from which on the lock is let go of: who does that may wait until the step thread gives it back."""
TOGETHER: Final = 4
"""Sends from which on a ring for them is worth its while."""

_T = TypeVar("_T")


class Writer(Protocol):
    """A connection."""

    @property
    def descriptor(self) -> int:
        """Of its socket, where what is written is what the client reads; else -1."""

    def take(self) -> bytes:
        """What was collected, if the kernel may have it; what may not go past the transport is given to that."""

    def write(self, data: bytes) -> None:
        """Give this to the transport."""

    def cut(self) -> None:
        """Reset the connection now."""


class Outbox:
    """Makes first and writes then: a step's tokens are rendered for all connections before the first one is sent.

    A write runs through so much of the kernel that our own code and data leave the processor's nearest caches. Between
    each two tokens that cost more than to make one (``bench/front.py``).

    All are written in one call, which goes past their transports, and where they are many lets go of the interpreter's
    lock. What a transport has not written yet is never overtaken, and what the kernel does not take goes to the
    transport, with all that follows from it.
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
        writers: list[Writer] = []
        descriptors: list[int] = []
        pieces: list[bytes] = []
        for writer in behind:
            piece = or_cut(writer, writer.take)
            if piece:
                writers.append(writer)
                descriptors.append(writer.descriptor)
                pieces.append(piece)
        send_past(writers, descriptors, pieces)


def send_past(writers: Sequence[Writer], descriptors: list[int], pieces: list[bytes]) -> None:
    """Send each piece past its transport, which holds nothing back; what the kernel does not take is given to that."""
    for place, sent in send_each(descriptors, pieces, len(pieces) >= MANY):
        or_cut(writers[place], partial(writers[place].write, pieces[place][sent:]))


def or_cut(writer: Writer, write: Callable[[], _T]) -> _T | None:
    """A writer's defect costs its own connection, and none of those whose bytes wait beside it."""
    try:
        return write()
    except Exception as error:  # noqa: BLE001 - as on the connection, which is not below us here
        log_defect("a connection was cut", error)
        writer.cut()
        return None
