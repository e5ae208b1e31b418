"""Several real servers on loopback, whose steps sleep; one of them is killed, hangs, or is restarted."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from client.nursery import Nursery, Server
from zerolayer import AsyncClient, Client
from zerolayer.client.errors import CutStream
from zerolayer.client.retry import RetryPolicy

TOKENS = 8
WORKERS = 9  # one more than two nodes have slots for: all three are needed, whatever the prompts hash to
PATIENT = RetryPolicy(spare=100)  # a slow machine makes refusals that say nothing about failover


@pytest.fixture
def nodes(running: list[Server]) -> list[Server]:
    for node in running:
        node.ready()
    return running


@pytest.fixture(scope="module")
def running(nursery: Nursery) -> Iterator[list[Server]]:
    running = [Server(nursery) for _ in range(3)]
    yield running
    for node in running:
        node.kill()


class Load:
    """So many workers who ask again and again until they are told to stop; what came of it."""

    def __init__(self, client: AsyncClient, workers: int) -> None:
        self.client = client
        self.answers: Counter[str] = Counter()  # by node
        self.cut = 0
        self._over = False
        self._tasks = [asyncio.create_task(self._work(number)) for number in range(workers)]

    async def _work(self, number: int) -> None:
        while not self._over:
            messages = [{"role": "user", "content": f"Tell me about {number}."}]
            try:
                answer = await self.client.chat(messages, max_tokens=TOKENS, deadline_ms=20_000).answer()
            except CutStream:
                self.cut += 1
                continue
            assert answer.outcome.completion_tokens == TOKENS
            self.answers[answer.node] += 1

    async def reach(self, count: int, node: str | None = None) -> None:
        """Until so many more answers came, of ``node`` if given."""
        goal = self._count(node) + count
        deadline = time.monotonic() + 60
        while self._count(node) < goal:
            assert not any(task.done() for task in self._tasks), "a call failed"
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    def _count(self, node: str | None) -> int:
        return self.answers.total() if node is None else self.answers[node]


def test_no_call_fails_when_a_node_is_killed_under_load_and_its_return_is_noticed(nodes) -> None:
    async def run() -> None:
        client = AsyncClient([node.url for node in nodes], retry=PATIENT)
        load = Load(client, WORKERS)
        await load.reach(30)
        assert set(load.answers) == {node.url for node in nodes}
        assert nodes[0].end(signal.SIGKILL) == -signal.SIGKILL
        await load.reach(30)
        nodes[0].start()
        await load.reach(5, nodes[0].url)
        await load.stop()
        statistics = client.statistics
        assert (statistics.failed, statistics.out_of_budget) == (0, 0)
        assert statistics.cut == load.cut <= 4  # what ran in the slots of the node that died
        assert statistics.answered == load.answers.total() + load.cut

    asyncio.run(run())


def test_no_call_fails_while_all_nodes_are_restarted_in_turn(nodes) -> None:
    async def run() -> None:
        client = AsyncClient([node.url for node in nodes], retry=PATIENT)
        load = Load(client, WORKERS)
        await load.reach(20)
        for node in nodes:
            assert await asyncio.to_thread(node.end, signal.SIGTERM) == 0
            node.start()
            await load.reach(3, node.url)
        await load.stop()
        assert (client.statistics.failed, load.cut) == (0, 0)

    asyncio.run(run())


def test_a_node_that_hangs_costs_its_calls_no_more_than_the_wait_that_was_allowed(nodes) -> None:
    async def run() -> None:
        client = AsyncClient([node.url for node in nodes], retry=PATIENT, answer_within_s=1.0, timeout_s=1.0)
        load = Load(client, WORKERS)
        await load.reach(20)
        nodes[2].signal(signal.SIGSTOP)
        await load.reach(40)
        await load.stop()
        assert client.statistics.failed == 0
        assert load.cut <= 4

    asyncio.run(run())


def test_threads_share_a_client_and_every_booking_is_kept(nodes) -> None:
    client = Client(nodes[0].url, retry=PATIENT)
    answers = []

    def work(number: int) -> None:
        answers.extend(client.generate(f"{number} {turn}", max_tokens=TOKENS).answer() for turn in range(3))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 24
    statistics = client.statistics
    assert (statistics.answered, statistics.failed, statistics.cut) == (24, 0, 0)
    assert statistics.booked > 0  # eight ask for four slots
