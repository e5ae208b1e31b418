"""Four real nodes under full load, one of which fails in each of the ways that machines and networks fail.

What is asserted is what became of calls, and what the nodes' own ledgers say was executed; how long a fault is felt is
a figure of ``bench/failover.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.fake_servers import FakeNameServer
from judges.fault_load import SLOTS, Load, Node, ask, running_nodes
from judges.relay import Damage, Relay
from zerolayer import AsyncClient
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.service import Clocks

pytestmark = pytest.mark.judge
STORY = Path(__file__).parent / "cut_story.py"
PATIENT = RetryPolicy(spare=200)  # a slow machine makes refusals that say nothing about faults
HOUR_S = 3600
Counts = tuple[int, int, int]  # calls that were answered, streams that were cut, requests without an answer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    with running_nodes(tmp_path_factory.mktemp("faults")) as nodes:
        yield nodes


@pytest.fixture
def nodes(running: list[Node]) -> list[Node]:
    for node in running:
        node.up()
    return running


async def _expected(nodes: list[Node]) -> str:
    async with AsyncClient(nodes[-1].url) as client:
        return (await ask(client)).text


def test_a_node_that_is_ten_times_as_slow_fails_no_call_and_gets_fewer(nodes: list[Node]) -> None:
    async def run() -> None:
        async with Relay(nodes[0].url) as slow:
            urls = [slow.url, *(node.url for node in nodes[1:])]
            async with AsyncClient(urls, retry=PATIENT) as client:
                load = Load(client, await _expected(nodes))
                await load.reach(40)
                slow.pause_s = 0.05  # a token of the others comes every 5 ms
                before = load.answers.copy()
                await load.reach(200)
                await load.stop()
                after = load.answers - before
                assert (client.statistics.failed, load.cut, load.bad, load.wrong) == (0, 0, 0, [])
                assert after[slow.url] < min(after[url] for url in urls[1:])

    asyncio.run(run())


def test_replies_that_are_corrupted_are_reported_or_asked_for_elsewhere_and_none_is_taken_for_an_answer(
    nodes: list[Node],
) -> None:
    async def run() -> None:
        async with Relay(nodes[0].url) as broken:
            urls = [broken.url, *(node.url for node in nodes[1:])]
            async with AsyncClient(urls, retry=PATIENT, protocol="json") as client:
                load = Load(client, await _expected(nodes))
                await load.reach(40)
                broken.change = Damage()
                async with asyncio.timeout(60):
                    while broken.changed < 30:
                        await load.reach(10)
                broken.change = bytes
                await load.reach(5, broken.url)
                await load.stop()
                assert load.bad + load.cut + client.statistics.unanswered > 0
                assert (client.statistics.failed, load.wrong) == (0, [])

    asyncio.run(run())


@pytest.mark.parametrize("skew_s", [HOUR_S, -HOUR_S])
def test_bookings_are_kept_though_the_clock_of_every_node_is_an_hour_off(nodes: list[Node], skew_s: int) -> None:
    """It is the client's that is moved: what counts is how far the two are from each other."""

    async def run() -> None:
        clocks = Clocks(wall_ns=lambda: time.time_ns() - skew_s * 1_000_000_000)
        async with AsyncClient(nodes[0].url, retry=PATIENT, clocks=clocks) as client:
            load = Load(client, await _expected(nodes), workers=6)  # of four slots: two of six are booked
            await load.reach(60)
            await load.stop()
            assert client.statistics.booked > 0
            assert (client.statistics.failed, load.cut, load.wrong) == (0, 0, [])

    asyncio.run(run())


def test_a_node_that_is_killed_costs_the_streams_it_cut_and_nothing_is_executed_twice_unnoticed(
    nodes: list[Node],
) -> None:
    async def run() -> Counts:
        async with AsyncClient([node.url for node in nodes], retry=PATIENT) as client:
            load = Load(client, expected)
            await load.reach(60)
            assert await asyncio.to_thread(nodes[0].end, signal.SIGKILL) == -signal.SIGKILL
            await load.reach(60)
            nodes[0].start()
            await load.reach(5, nodes[0].url)
            return await _only_cut(load, client)

    expected = asyncio.run(_expected(nodes))
    _executes_none_twice(nodes, run)


def test_a_node_that_hangs_costs_the_streams_it_held_and_nothing_is_executed_twice_unnoticed(nodes: list[Node]) -> None:
    """Which of its connections are dead is found out by what does not come back within two seconds."""

    async def run() -> Counts:
        urls = [node.url for node in nodes]
        async with AsyncClient(urls, retry=PATIENT, answer_within_s=2.0, dead_after_s=2.0) as client:
            load = Load(client, expected)
            await load.reach(60)
            nodes[0].signal(signal.SIGSTOP)
            counted = load.answers.copy()
            await load.reach(60, *urls[1:])
            assert (load.answers - counted)[urls[0]] <= SLOTS  # what had been read already
            nodes[0].signal(signal.SIGCONT)
            await load.reach(5, urls[0])
            return await _only_cut(load, client)

    expected = asyncio.run(_expected(nodes))
    _executes_none_twice(nodes, run)


def test_no_call_fails_while_all_nodes_are_restarted_in_turn_and_none_is_executed_twice_unnoticed(
    nodes: list[Node],
) -> None:
    async def run() -> tuple[int, int]:
        async with AsyncClient([node.url for node in nodes], retry=PATIENT) as client:
            load = Load(client, expected)
            await load.reach(20)
            for node in nodes:
                assert await asyncio.to_thread(node.end, signal.SIGTERM) == 0
                node.start()
                await load.reach(3, node.url)
            await load.stop()
            statistics = client.statistics
            assert (statistics.failed, load.cut, load.bad, load.wrong) == (0, 0, 0, [])
            return statistics.answered, statistics.unanswered

    expected = asyncio.run(_expected(nodes))
    before = _executed(nodes)
    answered, unanswered = asyncio.run(run())  # a request may meet the end of its connection: it is counted
    assert answered <= _executed(nodes) - before <= answered + unanswered


def test_a_client_of_dns_goes_on_when_no_name_server_answers_and_a_node_is_killed(nodes: list[Node]) -> None:
    async def run(names: FakeNameServer) -> None:
        source = f"dns+srv://_http._tcp.nodes?server={names.address}"
        async with AsyncClient(source, retry=PATIENT) as client:
            load = Load(client, await _expected(nodes))
            await load.reach(5, *(node.url for node in nodes))
            names.silent = True
            async with asyncio.timeout(60):
                while names.ignored < 3:
                    await load.reach(10)
            assert await asyncio.to_thread(nodes[0].end, signal.SIGKILL) == -signal.SIGKILL
            await load.reach(60)
            nodes[0].start()
            await load.reach(5, nodes[0].url)
            await load.stop()
            assert (client.statistics.failed, load.wrong) == (0, [])
            assert load.cut == client.statistics.cut <= SLOTS

    names = FakeNameServer()
    for node in nodes:
        names.add("_http._tcp.nodes", 33, node.host, ttl=1, port=node.port)
    try:
        asyncio.run(run(names))
    finally:
        names.close()


async def _only_cut(load: Load, client: AsyncClient) -> Counts:
    """The end of a load that lost nothing but the streams of one node."""
    await load.stop()
    statistics = client.statistics
    assert (statistics.failed, load.bad, load.wrong) == (0, 0, [])
    assert load.cut == statistics.cut <= SLOTS
    return statistics.answered, statistics.cut, statistics.unanswered


def _executes_none_twice(nodes: list[Node], run: Callable[[], Coroutine[None, None, Counts]]) -> None:
    before = _executed(nodes)
    answered, cut, unanswered = asyncio.run(run())
    assert answered - cut <= _executed(nodes) - before <= answered + unanswered


def _executed(nodes: list[Node]) -> int:
    return sum(node.executed() for node in nodes)


def test_the_nodes_that_dns_named_stay_known_to_servers_and_clients_when_no_name_server_answers(
    tmp_path: Path,
) -> None:
    async def run(nodes: list[Node], names: FakeNameServer) -> None:
        async with AsyncClient(nodes[0].url, retry=PATIENT) as client:  # the others it learns
            load = Load(client, await _expected(nodes))
            await load.reach(5, *(node.url for node in nodes[1:]))
            names.silent = True
            async with asyncio.timeout(60):
                while names.ignored < 3:
                    await load.reach(10)
                while sorted(client.nodes) != sorted(node.url for node in nodes):
                    await load.reach(1)
            assert await asyncio.to_thread(nodes[0].end, signal.SIGTERM) == 0  # the only one that was told of DNS
            await load.reach(60)
            await load.stop()
            assert (client.statistics.failed, load.cut, load.wrong) == (0, 0, [])

    names = FakeNameServer()
    peers = f"dns+srv://_http._tcp.nodes?server={names.address}"
    try:
        with running_nodes(tmp_path, 3, ("--peers", peers)) as nodes:
            for node in nodes:
                names.add("_http._tcp.nodes", 33, node.host, ttl=1, port=node.port)
            asyncio.run(run(nodes, names))
    finally:
        names.close()


@pytest.fixture(scope="module")
def told(
    alone: list[str], tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What happened when the network of one of four nodes was taken down and up again."""
    tool("ip", "apt-get install iproute2")
    run = subprocess.run(
        [*alone, sys.executable, str(STORY), str(tmp_path_factory.mktemp("cut"))],
        capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_no_call_fails_when_the_network_of_a_node_is_cut(told: dict[str, Any]) -> None:
    assert (told["failed"], told["bad"], told["wrong"]) == (0, 0, [])
    assert told["cut"] <= told["slots"]


def test_the_other_nodes_go_on_while_one_is_cut_off(told: dict[str, Any]) -> None:
    assert told["before"] > 0
    assert told["during"] == {"cut off": 0, "others": told["wanted"]}


def test_a_node_whose_network_is_back_is_found_again(told: dict[str, Any]) -> None:
    assert told["after"] > 0


def test_what_was_asked_again_because_of_the_cut_is_counted(told: dict[str, Any]) -> None:
    """A node that is cut off ends the answers that it has begun: their callers were told that they were cut."""
    assert told["executed"] <= told["answered"] + told["unanswered"] + told["cut"]
