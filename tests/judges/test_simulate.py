"""The simulator beside the real server: the same trace and seed, the same clients, the same fates."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from reference.server import running_server
from zerolayer.check import target as targets
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.load_client import LoadClient
from zerolayer.check.simulate import Cost, Demand, Outcome, rules, simulate

pytestmark = pytest.mark.judge

SLOTS, STEP_MS, TOKENS, COUNT, RETRIES = 4, 20.0, 20, 200, 2  # steps so long that a busy machine hardly stretches them
CALM_PER_S, FULL_PER_S = 6.0, 10.0  # four slots of 400 ms each serve 10/s
Tries = dict[int, list[Exchange]]


def trace(per_s: float) -> list[float]:
    return np.cumsum(np.random.default_rng(11).exponential(1000 / per_s, COUNT)).tolist()


def served(per_s: float) -> tuple[float, Tries]:
    """The mean step in ms, and the attempts of each request, which come when they were told to."""
    tries: Tries = {}
    with running_server("--engine", f"mock:step_us={STEP_MS * 1000:.0f}", "--slots", str(SLOTS)) as url:
        target = targets.parse(url, "openai", "", ())
        client = LoadClient(target.endpoint, 20)
        target = targets.discover(client, target, ask_api=True)
        rng = random.Random(1)
        client.prepare(32)
        start = client.clock() + 10_000_000

        def plan(number: int, at_ns: int, body: bytes, attempt: int) -> Planned:
            return Planned(at_ns, target.payload(body, attempt), "replay", attempt, 1, number, body)

        def again(exchange: Exchange) -> Iterator[Planned]:
            planned = exchange.planned
            tries.setdefault(planned.position, []).append(exchange)
            if exchange.status == 429 and planned.group < RETRIES and exchange.promised_ms >= 0:
                at_ns = exchange.end_ns + exchange.promised_ms * 1_000_000
                yield plan(planned.position, at_ns, planned.body, planned.group + 1)

        first = [
            plan(i, start + int(at * 1e6), target.make_body(rng, TOKENS, 0), 0) for i, at in enumerate(trace(per_s))
        ]
        client.run(first, again)
        client.close()
    return step_ms(tries), tries


def step_ms(tries: Tries) -> float:
    """The mean time between tokens, as a cost table should have it: measured, with what slows them now and then."""
    whole = [each[-1] for each in tries.values() if each[-1].status == 200]
    return float(np.mean([(each.end_ns - each.pieces[0][0]) / 1e6 / (TOKENS - 1) for each in whole]))


def stood_still(measured_ms: float, tries: Tries) -> bool:
    took = [(each[-1].end_ns - each[-1].sent_ns) / 1e6 for each in tries.values() if each[-1].status == 200]
    return not took or max(took) > 3 * TOKENS * measured_ms


def planned_by_us(per_s: float, measured_ms: float) -> Outcome:
    cost = Cost(
        name="mock", slots=SLOTS, decode_ms=measured_ms, mixed_ms=measured_ms, chunk_tokens=512, slot_tokens=4096
    )
    work = Demand(np.array(trace(per_s)), np.full(COUNT, 50.0), np.full(COUNT, float(TOKENS)))
    return simulate(work, cost, 1, rules(senders=1, retries=RETRIES))


def tolerance(count: float) -> float:
    """Two points, and three standard errors of a share of so few requests."""
    share = count / COUNT
    return 0.02 + 3 * float(np.sqrt(share * (1 - share) / COUNT))


@pytest.fixture(scope="module")
def beside() -> dict[float, tuple[float, Tries]]:
    """Both servers at the same time: they sleep most of it."""
    rates = (CALM_PER_S, FULL_PER_S)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(rates, pool.map(served, rates), strict=True))


@pytest.mark.parametrize("per_s", [CALM_PER_S, FULL_PER_S])
def test_the_server_serves_and_refuses_what_the_simulator_says(
    per_s: float, beside: dict[float, tuple[float, Tries]]
) -> None:
    """20 tokens of 20 ms on four slots: from calm to all that the server can do."""
    measured_ms, tries = beside[per_s]
    if stood_still(measured_ms, tries):  # a machine that stands still is another server than the one that was planned
        measured_ms, tries = served(per_s)
    assert len(tries) == COUNT
    met = sum(each[0].status == 200 for each in tries.values()) / COUNT
    refused = sum(each[-1].status != 200 for each in tries.values()) / COUNT
    expected = planned_by_us(per_s, measured_ms)
    print(
        f"{per_s}/s: met {met:.3f}, expected {expected.met / COUNT:.3f}; "
        f"refused {refused:.3f}, expected {expected.refused / COUNT:.3f}; "
        f"{Counter(exchange.status for each in tries.values() for exchange in each)}, steps of {measured_ms:.1f} ms"
    )
    assert met == pytest.approx(expected.met / COUNT, abs=tolerance(expected.met))
    assert refused == pytest.approx(expected.refused / COUNT, abs=tolerance(expected.refused))
