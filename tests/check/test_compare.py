"""Two runs side by side: real differences are told, chance is not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from check import simulated
from zerolayer.check.compare import compare, text, to_json
from zerolayer.check.run_file import BASELINE, PHASES, PULSE, Run, TargetInfo


def run(service: simulated.Service, seed: int, **changes: object) -> Run:
    return simulated.run(service, seed, probes=60, sizes=(1, 16), repeats=8, step_s=0.5, **changes)


def slower(factor: float) -> simulated.Service:
    return lambda rng, at: factor * simulated.times(rng, len(at))


def test_the_same_service_twice_differs_at_most_once_in_twenty() -> None:
    worse = sum(compare(run(slower(1.0), seed), run(slower(1.0), 500 + seed), 0.0).exit_code != 0 for seed in range(60))
    assert worse <= 4


def test_a_slower_service_is_worse() -> None:
    comparison = compare(run(slower(1.0), 1), run(slower(1.2), 2), 0.05)
    assert comparison.exit_code == 4
    assert {"S0", "P50 of pulses of 16"} <= {each.name for each in comparison.differences if each.worse}


def test_a_faster_service_is_better_and_not_worse() -> None:
    comparison = compare(run(slower(1.2), 1), run(slower(1.0), 2), 0.05)
    assert comparison.exit_code == 0
    assert any(each.better for each in comparison.differences)


def test_a_worsening_within_the_tolerance_is_accepted() -> None:
    assert compare(run(slower(1.0), 1), run(slower(1.2), 2), 0.3).exit_code == 0


def test_a_service_that_came_to_refuse_is_worse() -> None:
    comparison = compare(run(simulated.healthy(0.15), 1), run(simulated.refusing(8), 2), 0.05)
    assert "refused of pulses of 16" in {each.name for each in comparison.differences if each.worse}


def test_requests_of_one_pulse_share_its_fate() -> None:
    """Two of eight pulses were slow as a whole: that is two accidents, not 32."""
    rows = [("baseline", 0, 1, i, i * 80.0, 50.0 + i % 3) for i in range(40)]
    pulses = [("pulse", g, 16, i, 9000.0 + g * 500, 50.0 + i % 5) for g in range(1, 9) for i in range(16)]
    unlucky = [(*row[:5], row[5] + (60 if row[1] in (3, 6) else 0)) for row in pulses]
    comparison = compare(simulated.build(rows + pulses), simulated.build(rows + unlucky), 0.05)
    assert comparison.exit_code == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run: replace(run, timer_lag=run.timer_lag + 10**6), "too late to judge"),
        (lambda run: replace(run, target=TargetInfo("x", "openai")), "different APIs"),
        (lambda run: replace(run, size=run.size + 1000), "no pulse of the same size"),
    ],
)
def test_what_cannot_be_compared_is_exit_20(change, reason: str) -> None:
    first = run(slower(1.0), 1)
    comparison = compare(first, change(first), 0.05)
    assert comparison.exit_code == 20
    assert reason in text(comparison)


def under(run: Run, slowness: float, seed: int, address: str = "http://127.0.0.1:8000/") -> Run:
    """The run with the pace of the machine that it was taken on: 10 ms at a slowness of 1, give or take 3 %."""
    took = np.random.default_rng(seed).normal(10_000 * slowness, 300, 40).astype(np.int64)
    phases = np.repeat([PHASES.index(BASELINE), PHASES.index(PULSE)], 20)
    return replace(run, target=TargetInfo(address, "http"), pace_phase=phases, pace_took=took)


def test_what_is_worse_only_because_the_machine_was_is_undecided() -> None:
    comparison = compare(under(run(slower(1.0), 1), 1.0, 3), under(run(slower(1.2), 2), 1.2, 4), 0.05)
    assert comparison.exit_code == 20
    verdict, why = text(comparison).splitlines()[:2]
    assert verdict.startswith("UNDECIDED (exit 20): S0, P50 of pulses of 16")
    assert "the machine itself was" in why
    assert not any(each.worse for each in comparison.differences)


@pytest.mark.parametrize(("service", "machine"), [(1.2, 1.0), (1.6, 1.2), (1.2, 0.8)])
def test_a_service_that_is_slower_than_its_machine_explains_is_worse(service: float, machine: float) -> None:
    comparison = compare(under(run(slower(1.0), 1), 1.0, 3), under(run(slower(service), 2), machine, 4), 0.05)
    assert comparison.exit_code == 4


def test_what_is_better_only_because_the_machine_was_is_not_called_better() -> None:
    comparison = compare(under(run(slower(1.2), 1), 1.2, 3), under(run(slower(1.0), 2), 1.0, 4), 0.05)
    assert comparison.exit_code == 0
    assert {each.name: each.state for each in comparison.differences}["S0"] == "undecided"


def test_a_client_elsewhere_excuses_nothing_by_its_own_machine() -> None:
    first, second = (run(slower(factor), seed) for factor, seed in ((1.0, 1), (1.2, 2)))
    address = "https://service.example/"
    comparison = compare(under(first, 1.0, 3, address), under(second, 1.2, 4, address), 0.05)
    assert (comparison.exit_code, comparison.machines) == (4, {})


def test_what_slows_every_request_alike_leaves_a_pulse_as_many_lone_requests_as_before() -> None:
    alike = compare(run(slower(1.0), 1), run(slower(1.2), 2), 0.05).ratio
    longer = compare(run(simulated.fifo(16), 1), run(simulated.fifo(4), 2), 0.05).ratio
    assert alike is not None
    assert longer is not None
    assert alike[2].low <= 0 <= alike[2].high
    assert longer[2].low > 0


def test_the_text_names_every_figure_with_its_interval_and_n() -> None:
    lines = text(compare(run(slower(1.0), 1), run(slower(1.2), 2), 0.05)).splitlines()
    assert lines[0].startswith("WORSE (exit 4)")
    assert all("n=" in line and "[" in line for line in lines[3 : lines.index("", 3)])


def test_the_json_is_versioned() -> None:
    document = json.loads(to_json(compare(run(slower(1.0), 1), run(slower(1.0), 2), 0.05)))
    assert (document["version"], document["exit_code"]) == (2, 0)
    assert document["differences"][0]["difference"].keys() == {"value", "low", "high"}
