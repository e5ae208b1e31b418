"""A completions server that answers from a script, in every framing that peers use. Nothing is computed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Script:
    """How the server behaves. ``refuse_first`` requests get a 429 that promises ``retry_after_ms``."""

    framing: str = "chunked"  # chunked | eof
    tokens_per_event: int = 1
    refuse_first: int = 0
    retry_after_ms: int = 20
    close_after_reply: bool = False
    cut_after: int = 0  # tokens after which the connection breaks; 0: never
    done: bool = True
    pause_s: float = 0.0
    bodies: list[dict[str, object]] = field(default_factory=list)
    connections: int = 0


def events(tokens: int, tokens_per_event: int, done: bool) -> list[bytes]:
    """The SSE events of one completion, its usage and its end."""
    out = []
    for start in range(0, tokens, tokens_per_event):
        text = " word" * min(tokens_per_event, tokens - start)
        out.append(b'data: {"choices":[{"index":0,"text":"%s"}],"usage":null}\n\n' % text.encode())
    out.append(b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":%d}}\n\n' % tokens)
    return [*out, b"data: [DONE]\n\n"] if done else out


async def serve_connection(script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    script.connections += 1
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                body = b'{"object":"list","data":[{"id":"scripted","object":"model"}]}'
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                continue
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            script.bodies.append(json.loads(await reader.readexactly(length)))
            if script.refuse_first:
                script.refuse_first -= 1
                head = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 2\r\n"
                writer.write(head + b"retry-after-ms: %d\r\n\r\n{}" % script.retry_after_ms)
                continue
            if not await answer(script, int(str(script.bodies[-1]["max_tokens"])), writer):
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer(script: Script, tokens: int, writer: asyncio.StreamWriter) -> bool:
    """True if the connection stays open."""
    chunked = script.framing == "chunked"
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
    writer.write(b"transfer-encoding: chunked\r\n\r\n" if chunked else b"connection: close\r\n\r\n")
    for number, event in enumerate(events(tokens, script.tokens_per_event, script.done)):
        if script.cut_after and number * script.tokens_per_event >= script.cut_after:
            return False
        writer.write(b"%x\r\n%s\r\n" % (len(event), event) if chunked else event)
        await writer.drain()
        await asyncio.sleep(script.pause_s)
    if chunked:
        writer.write(b"0\r\n\r\n")
    return chunked and not script.close_after_reply


@contextmanager
def scripted_server(script: Script) -> Iterator[str]:
    """The URL of a server that runs in its own thread."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    address: list[str] = []
    stop = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(lambda r, w: serve_connection(script, r, w), "127.0.0.1", 0)
        address.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        started.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    started.wait(10)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
