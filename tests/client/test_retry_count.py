"""What the client says of how often a call has waited: a server tells those who come back from those who come."""

from __future__ import annotations

import asyncio

import pytest

from zerolayer import AsyncClient

HI = [{"role": "user", "content": "Hello there"}]
MORE_THAN_SLOTS = 9


def test_a_call_that_was_refused_says_so_when_it_comes_back(scripted, http) -> None:
    server = scripted(http.busy.replace(b"120", b"1"), http.busy.replace(b"120", b"1"), http.hello)
    asyncio.run(AsyncClient(server.url).chat(HI, model="m").answer())
    told = [request.partition(b"x-zl-retry-count: ")[2].partition(b"\r\n")[0] for request in server.requests]
    assert told == [b"0", b"1", b"2"]


@pytest.mark.parametrize("protocol", ["json", "protobuf", "grpc"])
def test_every_protocol_says_it_and_equal_calls_are_all_served(url, protocol) -> None:
    told: list[int] = []

    async def run() -> list[int]:
        async with AsyncClient(url, protocol=protocol) as client:
            await client.models()
            send = client._connections.send

            async def noted(address, method, path, headers, *rest):
                if method == "POST":
                    told.append(int(headers["x-zl-retry-count"]))
                return await send(address, method, path, headers, *rest)

            client._connections.send = noted
            asks = [client.chat(HI, max_tokens=6).answer() for _ in range(MORE_THAN_SLOTS)]
            return [answer.attempts.waits for answer in await asyncio.gather(*asks)]

    waits = asyncio.run(run())
    assert sorted(told) == sorted(number for waited in waits for number in range(waited + 1))
    assert max(waits) >= 1
