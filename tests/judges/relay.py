"""A wire between a client and a server that can be slow, or change what goes over it; in the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from urllib.parse import urlsplit

PIECE_BYTES = 65_536
SLOW_BYTES = 512  # of a piece where bytes are counted: a slow wire does not save them up


class Damage:
    """A wrong bit in a fifth of the pieces, where that can be told: framing, names, and what makes no UTF-8.

    Other wrong bits are for checksums and TLS to find: a text that is another text cannot be told from an answer.
    """

    PLACES = ((b"data: ", 0x02), (b"choices", 0x02), (b'"text"', 0x80), (b"HTTP/1.1 200", 0x01))

    def __init__(self) -> None:
        self._chance = random.Random(1)

    def __call__(self, piece: bytes) -> bytes:
        word, bit = self._chance.choice(self.PLACES)
        place = piece.find(word)
        if place < 0 or self._chance.random() < 0.8:
            return piece
        place += self._chance.randrange(1, 4)
        return piece[:place] + bytes([piece[place] ^ bit]) + piece[place + 1 :]


class Relay:
    """Listens on loopback and passes everything on to ``target``, a URL.

    ``pause_s`` is waited before each piece of a reply is passed on, all connections share ``bytes_s`` of replies a
    second (None: as many as come), and ``change`` makes a piece what it becomes. All may be set at any time.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self.url = ""
        self.pause_s = 0.0
        self.bytes_s: float | None = None
        self.change: Callable[[bytes], bytes] = bytes
        self.passed = 0  # bytes of replies
        self.changed = 0  # pieces that were not passed on as they were
        self._narrow = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        for work in (self._pass(reader, upstream[1], reply=False), self._pass(upstream[0], writer, reply=True)):
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, reply: bool) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while piece := await reader.read(PIECE_BYTES if self.bytes_s is None else SLOW_BYTES):
                if reply:
                    await self._wait(len(piece))
                    was, piece = piece, self.change(piece)
                    self.changed += piece != was
                writer.write(piece)
                await writer.drain()

    async def _wait(self, size: int) -> None:
        self.passed += size
        await asyncio.sleep(self.pause_s)
        if self.bytes_s is not None:
            async with self._narrow:
                await asyncio.sleep(size / self.bytes_s)
