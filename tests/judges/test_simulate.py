"""The simulator beside the real server: the same trace and seed, the same clients, the same fates."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from simulate_beside import Served, planned, served

pytestmark = pytest.mark.judge

REQUESTS = 200  # `python bench/simulate_beside.py` sends ten times as many
CALM, FULL = 6.0, 10.0  # requests per second; the server can do ten


def tolerance(count: int) -> float:
    """Two points, and three standard errors of a share of so few requests."""
    share = count / REQUESTS
    return 0.02 + 3 * float(np.sqrt(share * (1 - share) / REQUESTS))


@pytest.fixture(scope="module")
def beside() -> dict[float, Served]:
    with ThreadPoolExecutor(2) as pool:
        return dict(zip((CALM, FULL), pool.map(lambda rate: served(rate, REQUESTS), (CALM, FULL)), strict=True))


@pytest.mark.parametrize("per_s", [CALM, FULL])
def test_the_server_serves_and_refuses_what_the_simulator_says(per_s: float, beside: dict[float, Served]) -> None:
    """20 tokens of 20 ms on four slots: from calm to all that the server can do."""
    seen = beside[per_s]
    if seen.stalled:  # a machine that stands still is another server than the one that was planned
        seen = served(per_s, REQUESTS)
    expected = planned(per_s, REQUESTS, seen.step_ms)
    print(f"{per_s}/s, steps of {seen.step_ms:.1f} ms: {seen.fates}, expected {expected}")
    assert seen.fates.requests == REQUESTS
    assert seen.fates.met / REQUESTS == pytest.approx(expected.met / REQUESTS, abs=tolerance(expected.met))
    assert seen.fates.refused / REQUESTS == pytest.approx(expected.refused / REQUESTS, abs=tolerance(expected.refused))
