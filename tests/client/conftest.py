"""A server that says what it is told to: one scripted reply a connection, byte for byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

import pytest

from client.nursery import Nursery, Server


class ScriptedServer:
    """Answers connection after connection with the next reply of its script, then closes it; keeps the requests."""

    def __init__(self, replies: Sequence[bytes]) -> None:
        self.requests: list[bytes] = []
        self._replies = replies
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._listener.close()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        for reply in self._replies:
            try:
                self._listener.settimeout(10)
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                head = b"".join(takewhile(lambda line: line.strip(), iter(stream.readline, b"")))
                lines = head.lower().split(b"\r\n")
                length = sum(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
                self.requests.append(head + b"\r\n" + stream.read(length))
                connection.sendall(reply)


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def start(*replies: bytes) -> ScriptedServer:
        servers.append(ScriptedServer(replies))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def whole(status: str, body: bytes, *headers: str) -> bytes:
    """A complete HTTP/1.1 reply."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "content-type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """A chunked HTTP/1.1 event stream; without ``end`` it breaks off."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + body + (b"0\r\n\r\n" if end else b"")


@pytest.fixture
def http() -> type[Http]:
    return Http


class Http:
    """The two renderers, handed to tests as a fixture."""

    whole = staticmethod(whole)
    chunked = staticmethod(chunked)
    models = whole("200 OK", b'{"object":"list","data":[{"id":"smollm2"},{"id":"other"}]}')
    hello = chunked(
        b'data: {"model":"smollm2","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"model":"smollm2","choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\ndata: {"model":"smollm2",',
        b'"choices":[{"index":0,"delta":{"content":"lo \xc3\xa9"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","zerolayer":{"stages_us":{"read":3},'
        b'"program":"greedy","max_tokens":512,"deadline_ms":60000}}]}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n',
        b"data: [DONE]\n\n",
    )
    busy = whole(
        "429 Too Many Requests",
        b'{"error":{"message":"All slots are busy.","type":"rate_limit_error","param":null,"code":"slots_busy"}}',
        "retry-after-ms: 120",
        "retry-after: 1",
        "x-should-retry: true",
        "x-zl-ticket: t1",
    )


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Starts servers of four slots whose steps sleep for 4 ms."""
    nursery = Nursery("mock:step_us=4000", 4)
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def url(nursery: Nursery) -> Iterator[str]:
    """One of them, for a file of tests."""
    server = Server(nursery)
    server.ready()
    yield server.url
    server.kill()
