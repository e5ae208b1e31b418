"""The connections of a client: who is spoken to in HTTP/2, and how many connections that takes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import ExitStack

import pytest
import trustme

from client.http2_server import Host, serving, soon
from zerolayer import AsyncClient
from zerolayer.client.address import Address, Patience
from zerolayer.client.connections import CONNECTIONS, SPREAD, Connections, Life
from zerolayer.client.errors import BadReply, DeadlinePassed, NotReachable
from zerolayer.client.exchange import read_all
from zerolayer.wire.http2_frames import settings

HI = [{"role": "user", "content": "Hi"}]
EVENTS = b'data: {"choices":[{"delta":{"content":"Hello"}}]}\n\ndata: [DONE]\n\n'
PATIENCE = Patience(10, None, lambda: 0)


async def ask(connections: Connections, url: str) -> bytes:
    exchange = await connections.send(Address.parse(url), "POST", "/v1/x", {}, b"body", PATIENCE)
    return await read_all(exchange, PATIENCE)


def knowing(url: str) -> Connections:
    connections = Connections(None, http2=None)
    connections.knows(Address.parse(url))
    return connections


def test_requests_of_one_moment_share_a_connection() -> None:
    async def run() -> None:
        host = Host(EVENTS, together=SPREAD)
        async with serving(host) as url:
            connections = knowing(url)
            assert await asyncio.gather(*[ask(connections, url) for _ in range(SPREAD)]) == [EVENTS] * SPREAD
            assert len(host.connections) == 1
            connections.close()

    asyncio.run(run())


def test_many_requests_are_spread_over_eight_connections_and_no_more() -> None:
    async def run() -> None:
        many = SPREAD * CONNECTIONS + 40
        host = Host(EVENTS, together=many)
        async with serving(host) as url:
            connections = knowing(url)
            assert await asyncio.gather(*[ask(connections, url) for _ in range(many)]) == [EVENTS] * many
            assert len(host.connections) == CONNECTIONS == 8
            connections.close()

    asyncio.run(run())


def test_what_no_connection_takes_waits_for_room() -> None:
    async def run() -> None:
        host = Host(EVENTS, together=2, streams=2)
        async with serving(host) as url:
            connections = knowing(url)
            await ask_two(connections, url)  # from now on the server has said how many it takes
            assert await asyncio.gather(*[ask(connections, url) for _ in range(60)]) == [EVENTS] * 60
            assert len(host.connections) <= CONNECTIONS
            connections.close()

    asyncio.run(run())


async def ask_two(connections: Connections, url: str) -> None:
    await asyncio.gather(ask(connections, url), ask(connections, url))


def test_a_connection_that_goes_away_is_replaced() -> None:
    async def run() -> None:
        host = Host(EVENTS)
        async with serving(host) as url:
            connections = knowing(url)
            await ask(connections, url)
            host.connections[0].go_away()
            await asyncio.sleep(0.01)
            await ask(connections, url)
            assert len(host.connections) == 2
            connections.close()

    asyncio.run(run())


def test_a_connection_that_has_been_silent_for_a_whole_wait_takes_no_more_requests() -> None:
    async def run() -> None:
        host = Host(EVENTS)
        async with serving(host) as url:
            connections = knowing(url)
            await ask(connections, url)
            host.together = 0
            impatient = Patience(0.1, None, lambda: 0)
            with pytest.raises(NotReachable) as caught:
                await connections.send(Address.parse(url), "POST", "/v1/x", {}, b"", impatient)
            assert caught.value.sent
            host.together = 1
            host._waiting.clear()
            assert await ask(connections, url) == EVENTS
            assert len(host.connections) == 2
            connections.close()

    asyncio.run(run())


def test_the_first_reply_of_zerolayer_makes_the_next_request_one_of_http2(scripted, http) -> None:
    server = scripted(http.hello.replace(b"200 OK", b"200 OK\r\nserver: zerolayer/1"), b"")

    async def run() -> None:
        async with AsyncClient(server.url, protocol="json") as client:
            await client.chat(HI, model="m").answer()
            with pytest.raises(NotReachable):
                await client.chat(HI, model="m").answer()

    asyncio.run(run())
    assert server.requests[0].startswith(b"POST /v1/chat/completions HTTP/1.1")
    assert server.requests[1].startswith(b"PRI * HTTP/2.0")


def test_leaving_a_stream_resets_it_and_keeps_the_connection() -> None:
    async def run() -> None:
        host = Host(EVENTS, together=0)
        async with serving(host) as url:
            connections = knowing(url)
            task = asyncio.create_task(ask(connections, url))
            await soon(lambda: host.bodies)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await soon(lambda: host.left)
            host.together = 1
            host._waiting.clear()
            assert await ask(connections, url) == EVENTS
            assert len(host.connections) == 1
            connections.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize("offered", [["h2"], ["http/1.1"]])
def test_over_tls_the_handshake_says_which_version_is_spoken(authority, http, offered) -> None:
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)
    theirs.set_alpn_protocols(offered)

    async def plain(reader, writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http.whole("200 OK", EVENTS))
        await writer.drain()
        writer.close()

    async def run() -> None:
        host = Host(EVENTS)
        async with serving(host, theirs) as url:
            if offered == ["http/1.1"]:
                server = await asyncio.start_server(plain, "127.0.0.1", 0, ssl=theirs)
                url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            connections = Connections(ours, http2=None)
            assert await ask(connections, url) == EVENTS
            assert len(host.connections) == (offered == ["h2"])
            connections.close()
            if offered == ["http/1.1"]:
                server.close()

    asyncio.run(run())


def test_a_deadline_holds_over_http2_and_frees_the_server() -> None:
    async def run() -> None:
        host = Host(EVENTS, together=0)
        async with serving(host) as url, AsyncClient(url, protocol="grpc") as client:
            with pytest.raises(DeadlinePassed):
                await client.chat(HI, model="m", deadline_ms=100).answer()
            await soon(lambda: host.left)

    asyncio.run(run())


def test_what_answers_in_another_form_than_grpc_is_no_answer() -> None:
    async def run() -> None:
        async with serving(Host(EVENTS)) as url, AsyncClient(url, protocol="grpc") as client:
            with pytest.raises(BadReply, match="schema"):
                await client.chat(HI, model="m").answer()

    asyncio.run(run())


def test_a_connection_that_gives_no_sign_of_life_is_given_up_and_what_waits_on_it_is_told() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(settings({}))
        await reader.read(-1)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(mute, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connections = Connections(None, True, Life(dead_after_s=0.1))
        with pytest.raises(NotReachable) as caught:
            await ask(connections, url)
        assert caught.value.sent
        connections.close()
        server.close()

    asyncio.run(run())


def test_a_server_that_thinks_for_long_and_answers_pings_is_waited_for() -> None:
    async def run() -> None:
        host = Host(EVENTS, together=2)
        async with serving(host) as url:
            connections = Connections(None, True, Life(dead_after_s=0.1))
            first = asyncio.create_task(ask(connections, url))
            await asyncio.sleep(0.5)
            assert await ask(connections, url) == await first == EVENTS
            assert len(host.connections) == 1
            connections.close()

    asyncio.run(run())


def test_an_address_that_takes_no_connections_is_left_soon() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
            host, port = full.getsockname()
            for _ in range(3):  # nobody accepts them, so there is no room for one more
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex((host, port))
            connections = Connections(None, True, Life(connect_within_s=0.2))
            with pytest.raises(NotReachable) as caught:
                await ask(connections, f"http://{host}:{port}")
            assert not caught.value.sent
            connections.close()

    asyncio.run(run())


def test_whoever_waits_for_the_attempt_of_another_waits_no_longer_than_he_may(monkeypatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.sleep(60)

    async def run() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        connections, address = Connections(None, True, Life(connect_within_s=0.2)), Address.parse("http://127.0.0.1:9")
        begun_s = time.monotonic()
        soon, later = Patience(10, time.monotonic_ns() + 50_000_000, time.monotonic_ns), PATIENCE
        asked = [connections.send(address, "GET", "/", {}, b"", patience) for patience in (*[later] * 20, soon)]
        errors = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in errors] == [NotReachable] * 20 + [DeadlinePassed]
        assert time.monotonic() - begun_s < 2  # and not 20 attempts, one after the other

    asyncio.run(run())
