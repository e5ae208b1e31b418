"""Protocols that write down what a transport over TCP without TLS tells them."""

from __future__ import annotations

import asyncio

from zerolayer.front.plain import PlainTransport

MUCH = bytes(range(256)) * 16_384
"""4 MB: more than the kernel holds for a client that does not read."""


class Noted(asyncio.Protocol):
    """Writes down what it is told; ``fails`` at the first bytes."""

    transport: PlainTransport

    def __init__(self, *, keeps: bool = False, fails: bool = False) -> None:
        self.told: list[object] = []
        self.keeps = keeps
        self.fails = fails

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PlainTransport)
        self.transport = transport
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        if self.fails:
            raise ValueError("a defect")
        self.told.append(data)

    def eof_received(self) -> bool:
        self.told.append("ended")
        return self.keeps

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc.errno if isinstance(exc, OSError) else exc)

    def pause_writing(self) -> None:
        self.told.append("full")

    def resume_writing(self) -> None:
        self.told.append("room")
