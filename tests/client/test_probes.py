"""Nodes that failed, between failure and return: what is sent to them, and by whom."""

from __future__ import annotations

import asyncio
import time

from zerolayer import AsyncClient

SILENT = b""  # the request is read, and the connection closed


def paths(requests: list[bytes]) -> list[str]:
    return [request.split(b" ")[1].decode().rpartition("/")[2] for request in requests]


def test_a_node_that_failed_gets_calls_again_when_it_says_that_it_takes_work(scripted, http) -> None:
    unready, ready = http.whole("503 Service Unavailable", b"{}"), http.whole("200 OK", b"{}")
    broken, well = scripted(SILENT, unready, SILENT, ready, http.hello), scripted(*[http.hello] * 2000)

    async def run() -> None:
        async with AsyncClient([broken.url, well.url], protocol="json") as client:
            deadline = time.monotonic() + 30
            for number in range(2000):
                turn = [{"role": "user", "content": f"{number}"}]
                await client.chat(turn, model="m").answer()
                if len(broken.requests) == 5:
                    break
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            assert client.statistics.failed == 0
            assert client.statistics.unanswered == 1  # the call that found it broken

    asyncio.run(run())
    assert paths(broken.requests) == ["completions", "readyz", "readyz", "readyz", "completions"]


def test_a_server_that_knows_no_such_path_lives(scripted, http) -> None:
    other = http.whole("404 Not Found", b"{}")
    broken, well = scripted(SILENT, other, http.hello), scripted(*[http.hello] * 2000)

    async def run() -> None:
        async with AsyncClient([broken.url, well.url], protocol="json") as client:
            deadline = time.monotonic() + 30
            for number in range(2000):
                await client.chat([{"role": "user", "content": f"{number}"}], model="m").answer()
                if len(broken.requests) == 3:
                    break
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)

    asyncio.run(run())
    assert paths(broken.requests) == ["completions", "readyz", "completions"]


def test_a_client_that_is_closed_waits_for_no_node_to_come_back(scripted, http) -> None:
    broken, well = scripted(SILENT), scripted(*[http.hello] * 200)

    async def run() -> None:
        client = AsyncClient([broken.url, well.url], protocol="json")
        while not client._asker._probes:
            await client.chat([{"role": "user", "content": f"{time.monotonic_ns()}"}], model="m").answer()
            await asyncio.sleep(0.02)
        await client.close()
        assert client._asker._probes == set()

    asyncio.run(run())
