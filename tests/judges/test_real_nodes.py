"""Two nodes of the bundled model with a core each, one of which is killed under load.

How close the rate afterwards comes to the survivor's own is a figure of ``bench/failover.py --real``; here it is
compared with what it was a moment before on the same machine, and loosely, as others may use its cores.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

import pytest

from judges.fault_load import SLOTS, Load, Node, ask, started
from zerolayer import AsyncClient
from zerolayer.client.retry import RetryPolicy

pytestmark = pytest.mark.judge
PATIENT = RetryPolicy(spare=200)  # a slow machine makes refusals that say nothing about faults
WORKERS = 2 * SLOTS
ANSWERS = 40  # for a rate
LEAST_RATE = 0.5  # of the survivor's own: less is no noise
RECOVERY_S = 2.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("it needs two cores")
    flags = [("--devices", str(core), "--threads", "1", "--slot-tokens", "256") for core in cores]
    with started(flags, tmp_path_factory.mktemp("real")) as nodes:
        yield nodes


async def _seconds(load: Load) -> float:
    """For so many answers."""
    begun_s = time.monotonic()
    await load.reach(ANSWERS)
    return time.monotonic() - begun_s


def test_a_real_node_that_is_killed_leaves_the_other_at_its_own_rate_and_fails_no_call(nodes: list[Node]) -> None:
    async def alone(expected: str) -> float:
        async with AsyncClient(nodes[1].url, retry=PATIENT) as client:
            load = Load(client, expected, WORKERS)
            await load.reach(WORKERS)
            seconds = await _seconds(load)
            await load.stop()
            return seconds

    async def run() -> None:
        async with AsyncClient(nodes[1].url) as client:
            expected = (await ask(client)).text
        own_s = await alone(expected)
        before = sum(node.executed() for node in nodes)
        async with AsyncClient([node.url for node in nodes], retry=PATIENT) as client:
            load = Load(client, expected, WORKERS)
            await load.reach(5, nodes[0].url)
            assert await asyncio.to_thread(nodes[0].end, signal.SIGKILL) == -signal.SIGKILL
            killed_s = time.monotonic()
            await load.reach(WORKERS, nodes[1].url)
            recovery_s = time.monotonic() - killed_s
            after_s = await _seconds(load)
            await load.stop()
            statistics = client.statistics
        executed = sum(node.executed() for node in nodes) - before
        assert (statistics.failed, load.bad, load.wrong) == (0, 0, [])
        assert load.cut == statistics.cut <= SLOTS
        assert statistics.answered - statistics.cut <= executed <= statistics.answered + statistics.unanswered
        assert recovery_s <= RECOVERY_S + own_s
        assert after_s <= own_s / LEAST_RATE

    asyncio.run(run())
