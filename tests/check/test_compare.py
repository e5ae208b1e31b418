"""Two runs side by side: real differences are told, chance is not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from check import simulated
from zerolayer.check.compare import compare, text, to_json
from zerolayer.check.run_file import Run, TargetInfo


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


def test_the_text_names_every_figure_with_its_interval_and_n() -> None:
    lines = text(compare(run(slower(1.0), 1), run(slower(1.2), 2), 0.05)).splitlines()
    assert lines[0].startswith("WORSE (exit 4)")
    assert all("n=" in line and "[" in line for line in lines[3:])


def test_the_json_is_versioned() -> None:
    document = json.loads(to_json(compare(run(slower(1.0), 1), run(slower(1.0), 2), 0.05)))
    assert (document["version"], document["exit_code"]) == (1, 0)
    assert document["differences"][0]["difference"].keys() == {"value", "low", "high"}
