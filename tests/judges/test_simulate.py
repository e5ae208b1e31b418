"""The simulator beside the real server: the same arrivals, the same refusals."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from reference.server import running_server
from zerolayer.check import target as targets
from zerolayer.check.exchange import Planned
from zerolayer.check.load_client import LoadClient
from zerolayer.check.simulate import Cost, Demand, simulate

pytestmark = pytest.mark.judge

SLOTS, STEP_MS, TOKENS, COUNT = 4, 10.0, 20, 400


def test_the_server_refuses_what_the_simulator_says() -> None:
    rng = np.random.default_rng(11)
    at_ms = np.cumsum(rng.exponential(50.0, COUNT))  # 20/s of about 200 ms each, on four slots
    with running_server("--engine", f"mock:step_us={STEP_MS * 1000:.0f}", "--slots", str(SLOTS)) as url:
        target = targets.parse(url, "openai", "", ())
        client = LoadClient(target.endpoint, 20)
        target = targets.discover(client, target, ask_api=True)
        payload = target.payload(random.Random(1), TOKENS, 0)
        alone = []
        for _ in range(10):
            done = client.run([Planned(client.clock(), payload, "baseline", 0, 1, 0)])[0]
            alone.append((done.end_ns - done.sent_ns) / 1e6)
            time.sleep(0.02)
        client.prepare(32)
        start = client.clock() + 10_000_000
        seen = client.run([Planned(start + int(at * 1e6), payload, "replay", 1, 1, i) for i, at in enumerate(at_ms)])
        client.close()
    step_ms = float(np.median(alone)) / TOKENS  # measured, as a cost table should be
    cost = Cost(name="mock", slots=SLOTS, decode_ms=step_ms, mixed_ms=step_ms, chunk_tokens=512, slot_tokens=4096)
    work = Demand(at_ms, np.full(COUNT, 50.0), np.full(COUNT, float(TOKENS)))
    expected = simulate(work, cost, 1, book=False)
    refused = sum(each.status == 429 for each in seen)
    assert sum(each.status == 200 for each in seen) + refused == COUNT
    assert refused / COUNT == pytest.approx(expected.refused / COUNT, abs=0.02)
