"""Who has something to write when all replies of this turn of the loop are made."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Writer(Protocol):
    """A connection."""

    def flush(self) -> None:
        """Give the kernel what was collected."""


class Outbox:
    """Makes first and writes then: a step's tokens are rendered for all connections before the first one is sent.

    A write runs through so much of the kernel that our own code and data leave the processor's nearest caches. Between
    each two tokens that cost more than to make one (``bench/front.py``).
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
        for writer in behind:
            writer.flush()
