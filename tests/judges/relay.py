"""A wire between a client and a server that can be slow, or change what goes over it; in the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

PIECE_BYTES = 65_536


class Relay:
    """Listens on loopback and passes everything on to ``target``, a URL.

    ``pause_s`` is waited before each piece of a reply is passed on, and ``change`` makes the piece what it becomes.
    Both may be set at any time.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self.url = ""
        self.pause_s = 0.0
        self.change: Callable[[bytes], bytes] = bytes
        self.changed = 0  # pieces that were not passed on as they were
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
            while piece := await reader.read(PIECE_BYTES):
                if reply:
                    await asyncio.sleep(self.pause_s)
                    was, piece = piece, self.change(piece)
                    self.changed += piece != was
                writer.write(piece)
                await writer.drain()
