"""Clients and streams that end before their answers do: what they held on a server is given back."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from client.http2_server import Host, serving, soon
from zerolayer import AsyncClient, Client
from zerolayer.client.address import Address
from zerolayer.client.errors import CutStream

HI = [{"role": "user", "content": "Hi"}]
PIECE = b'data: {"choices":[{"delta":{"content":"Hello"}}]}\n\n'
ANSWER = PIECE + b"data: [DONE]\n\n"


class EndlessServer:
    """Speaks HTTP/1.1, begins to answer, never ends; tells when its client has gone."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.left = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + PIECE)
            while connection.recv(65536):
                pass
            self.left.set()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def endless() -> Iterator[EndlessServer]:
    server = EndlessServer()
    yield server
    server.close()


def over_http2(url: str) -> AsyncClient:
    client = AsyncClient(url, protocol="json")
    client._connections.knows(Address.parse(url))
    return client


def test_an_asynchronous_client_that_is_thrown_away_closes_its_connections() -> None:
    async def run() -> None:
        host = Host(ANSWER)
        async with serving(host) as url:
            client = over_http2(url)
            await client.chat(HI, model="m").answer()
            assert host.lost == 0
            del client
            gc.collect()
            await soon(lambda: host.lost == 1)

    asyncio.run(run())


def test_one_whose_loop_has_ended_is_thrown_away_quietly() -> None:
    async def run() -> AsyncClient:
        async with serving(Host(ANSWER)) as url:
            client = over_http2(url)
            await client.chat(HI, model="m").answer()
            client._connections.close()
            await asyncio.sleep(0)
            return client

    client = asyncio.run(run())
    del client
    assert gc.collect() >= 0  # a finaliser that raised would be a warning, and so an error


def test_an_asynchronous_stream_that_is_thrown_away_leaves_its_reply_and_not_its_connection() -> None:
    async def run() -> None:
        host = Host(PIECE, endless=True)
        async with serving(host) as url:
            client = over_http2(url)
            stream = client.chat(HI, model="m")
            assert await anext(stream) == "Hello"
            assert host.left == 0
            del stream
            gc.collect()
            await soon(lambda: host.left == 1)
            assert (host.lost, client.statistics.cut) == (0, 0)
            await client.close()

    asyncio.run(run())


def test_a_stream_that_is_thrown_away_leaves_its_reply_though_its_client_lives_on(endless) -> None:
    with Client(endless.url, protocol="json") as client:
        stream = client.chat(HI, model="m")
        assert next(stream) == "Hello"
        del stream
        gc.collect()
        assert endless.left.wait(30)
        assert client.statistics.cut == 0


def test_an_answer_whose_client_is_closed_meanwhile_never_looks_complete(endless) -> None:
    client = Client(endless.url, protocol="json")
    stream = client.chat(HI, model="m")
    assert next(stream) == "Hello"
    client.close()
    with pytest.raises(CutStream):
        list(stream)
    assert stream.outcome is None
    assert endless.left.wait(30)


def test_a_client_and_its_stream_that_are_thrown_away_together_leave_the_reply(endless) -> None:
    stream = Client(endless.url, protocol="json").chat(HI, model="m")
    assert next(stream) == "Hello"
    assert not endless.left.is_set()
    del stream
    gc.collect()
    assert endless.left.wait(30)
