"""A second node beside one that does not begin to answer."""

from __future__ import annotations

import asyncio

import pytest

from client.http2_server import Host, serving, soon
from zerolayer import AsyncClient
from zerolayer.client.errors import NotReachable

HI = [{"role": "user", "content": "Hi"}]
EVENTS = b'data: {"choices":[{"delta":{"content":"Hello"}}]}\n\ndata: [DONE]\n\n'


class Two:
    """A client of two servers, of which the one that is asked first answers as the test says."""

    def __init__(self, **options) -> None:
        self.hosts: dict[str, Host] = {}
        self.options = options

    async def run(self, test) -> None:
        one, other = Host(EVENTS), Host(EVENTS)
        async with serving(one) as first, serving(other) as second:
            self.hosts = {first: one, second: other}
            async with AsyncClient([first, second], protocol="json", **self.options) as client:
                client._connections._http2 = True
                await test(client, self.first(client))

    def first(self, client: AsyncClient) -> str:
        ask = client._service.nodes.choose(0, self.prefix())
        assert ask is not None
        return ask

    @staticmethod
    def prefix() -> bytes:
        from zerolayer.client.request import Options, Question

        return Question(Options("m"), HI).prefix

    def other(self, first: str) -> str:
        return next(url for url in self.hosts if url != first)


def test_the_second_node_answers_and_the_first_request_is_cancelled() -> None:
    two = Two(hedge_after_ms=20)

    async def test(client: AsyncClient, first: str) -> None:
        two.hosts[first].together = 0  # it never answers
        answer = await client.chat(HI, model="m").answer()
        assert (answer.text, answer.node) == ("Hello", two.other(first))
        assert answer.attempts.nodes == (first, two.other(first))
        assert (client.statistics.hedged, client.statistics.hedges_won) == (1, 1)
        await soon(lambda: two.hosts[first].left == 1)
        assert all(client._service.nodes[url].running == 0 for url in two.hosts)

    asyncio.run(two.run(test))


def test_a_node_that_answers_in_time_is_not_hedged() -> None:
    two = Two(hedge_after_ms=5000)

    async def test(client: AsyncClient, first: str) -> None:
        answer = await client.chat(HI, model="m").answer()
        assert answer.node == first
        assert (client.statistics.hedged, len(two.hosts[two.other(first)].bodies)) == (0, 0)

    asyncio.run(two.run(test))


def test_without_being_asked_for_nothing_is_hedged() -> None:
    two = Two(answer_within_s=0.3)

    async def test(client: AsyncClient, first: str) -> None:
        two.hosts[first].together = 0
        await client.chat(HI, model="m").answer()
        assert (client.statistics.hedged, client.statistics.unanswered) == (0, 1)

    asyncio.run(two.run(test))


def test_when_the_first_one_answers_after_all_the_second_is_cancelled() -> None:
    two = Two(hedge_after_ms=20)

    async def test(client: AsyncClient, first: str) -> None:
        late, second = two.hosts[first], two.hosts[two.other(first)]
        late.together, second.together = 0, 0
        task = asyncio.create_task(client.chat(HI, model="m").answer())
        await soon(lambda: second.bodies)
        late._waiting[0][0].answer(late._waiting[0][1], EVENTS)
        assert (await task).node == first
        await soon(lambda: second.left == 1)
        assert (client.statistics.hedged, client.statistics.hedges_won) == (1, 0)

    asyncio.run(two.run(test))


def test_a_caller_that_leaves_takes_both_requests_along() -> None:
    two = Two(hedge_after_ms=20)

    async def test(client: AsyncClient, first: str) -> None:
        for host in two.hosts.values():
            host.together = 0
        task = asyncio.create_task(client.chat(HI, model="m").answer())
        await soon(lambda: all(host.bodies for host in two.hosts.values()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await soon(lambda: all(host.left == 1 for host in two.hosts.values()))
        assert all(client._service.nodes[url].running == 0 for url in two.hosts)

    asyncio.run(two.run(test))


def test_a_second_node_that_is_down_costs_the_first_ones_answer_nothing() -> None:
    two = Two(hedge_after_ms=20)

    async def test(client: AsyncClient, first: str) -> None:
        late = two.hosts[first]
        late.together = 0

        async def down(*_: object) -> None:
            raise NotReachable("nothing listens")

        send = client._connections.send
        client._connections.send = lambda address, *rest: send(address, *rest) if str(address) == first else down()
        task = asyncio.create_task(client.chat(HI, model="m").answer())
        await soon(lambda: client._service.nodes[two.other(first)].failures == 1)
        late._waiting[0][0].answer(late._waiting[0][1], EVENTS)
        assert (await task).node == first

    asyncio.run(two.run(test))
