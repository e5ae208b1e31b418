"""What the detectors find and how often they cry wolf, by simulation: seeded runs, no clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from check import simulated
from zerolayer.check.figures import order
from zerolayer.check.findings import Kind
from zerolayer.check.report import conclude
from zerolayer.check.run_file import BASELINE, PULSE, Run

SEEDS = 4


def found(service: simulated.Service, **changes: object) -> list[set[Kind]]:
    return [{each.kind for each in conclude(simulated.run(service, seed, **changes))} for seed in range(SEEDS)]


@pytest.mark.parametrize(
    ("service", "kind"),
    [
        (simulated.fifo(8), Kind.QUEUE),
        (simulated.fifo(1), Kind.QUEUE),
        (simulated.fifo(8, cv=0.5), Kind.QUEUE),
        (simulated.fifo(20), Kind.QUEUE),
        (simulated.shaper(100), Kind.SHAPER),
        (simulated.shaper(15), Kind.SHAPER),
        (simulated.shaper(100, burst=5), Kind.SHAPER),
        (simulated.shaper(100, burst=16), Kind.SHAPER),
        (simulated.shaper(50, burst=8), Kind.SHAPER),
        (simulated.tick(20), Kind.TICK),
        (simulated.tick(40, cv=0.1), Kind.TICK),
        (simulated.company(8, 20), Kind.FIRST_ARRIVAL),
        (simulated.two_modes(0.1), Kind.MODE),
    ],
    ids=[
        "fifo",
        "one slot",
        "uneven fifo",
        "20 slots",
        "shaper",
        "slow shaper",
        "small burst",
        "large burst",
        "slow behind a burst",
        "tick",
        "uneven tick",
        "company",
        "modes",
    ],
)
def test_a_disease_is_found_alone_and_every_time(service: simulated.Service, kind: Kind) -> None:
    assert found(service) == [{kind}] * SEEDS


@pytest.mark.parametrize(
    ("service", "changes"),
    [
        (simulated.fifo(8), {}),
        (simulated.in_another_order(simulated.fifo(4), "none"), {}),
        (simulated.shaper(100), {}),
        (simulated.fifo(64), {"rate": 1500.0, "step_s": 1.0}),
        (simulated.sharing(), {"rate": 40.0}),
        (simulated.stall(), {"rate": 100.0}),
        (simulated.tick(20), {}),
        (simulated.company(8, 20), {}),
        (simulated.two_modes(0.1), {}),
    ],
    ids=["fifo", "no order", "shaper", "long line", "sharing", "stall", "tick", "company", "modes"],
)
def test_every_figure_of_a_finding_has_n_and_an_interval(service: simulated.Service, changes: dict[str, float]) -> None:
    """Of five values or fewer the median has no bounds; a chance is a probability as it is."""
    findings = conclude(simulated.run(service, **changes))
    figures = [each for finding in findings for name, each in finding.figures.items() if name != "chance"]
    assert figures
    assert all(each.low <= each.value <= each.high or 0 < each.n <= 5 for each in figures), findings


def test_processor_sharing_is_found_and_is_no_queue() -> None:
    assert found(simulated.sharing(), rate=40.0) == [{Kind.SHARING}] * SEEDS


@pytest.mark.parametrize("order", ["last", "none"])
def test_a_queue_is_found_whatever_its_order(order: str) -> None:
    assert found(simulated.in_another_order(simulated.fifo(4), order)) == [{Kind.QUEUE}] * SEEDS


def test_very_uneven_work_that_shares_is_still_no_queue() -> None:
    uneven: simulated.Service = lambda rng, at: simulated.times(rng, len(at), 1.0) * max(1.0, len(at) / 8)  # noqa: E731
    assert [Kind.QUEUE in kinds for kinds in found(uneven, step_s=0.0, sizes=(1, 40))] == [False] * SEEDS


def test_a_stall_is_found_in_a_calm_load_step() -> None:
    assert sum(Kind.STALL in kinds for kinds in found(simulated.stall(), rate=100.0)) >= SEEDS - 1


@pytest.mark.parametrize(
    "service",
    [
        simulated.healthy(0.05),
        simulated.healthy(0.15),
        simulated.healthy(0.5),
        simulated.healthy(1.0),
        simulated.refusing(8),
        simulated.refusing(32),
    ],
    ids=["even", "usual", "uneven", "very uneven", "8 slots", "32 slots"],
)
def test_a_healthy_service_is_never_accused(service: simulated.Service) -> None:
    """30 runs of each of six; `make judges` makes 1,000 more."""
    wrong = [seed for seed in range(30) if conclude(simulated.run(service, seed, probes=100, repeats=5))]
    assert wrong == []


@pytest.mark.judge
def test_at_most_one_healthy_run_in_100_is_accused() -> None:
    services = [simulated.healthy(cv) for cv in (0.05, 0.15, 0.5, 1.0)] + [simulated.refusing(8)]
    wrong = sum(bool(conclude(simulated.run(service, 1000 + seed))) for service in services for seed in range(200))
    print(f"{wrong} of 1,000 healthy runs were accused")
    assert wrong <= 10


def test_p99_over_p50_does_not_show_a_queue_but_the_order_does() -> None:
    """The ratio of a ramp is at most 2, however long the queue."""
    run = simulated.run(simulated.fifo(8), sizes=(1, 200), repeats=4, probes=60)
    largest = run.latency_ms[run.size == 200]
    p50, p99 = sorted(largest)[len(largest) // 2], sorted(largest)[int(len(largest) * 0.99)]
    seen = order(run)
    assert p99 / p50 < 2.1
    assert seen is not None
    assert seen.tau.low > 0.9


@pytest.mark.parametrize(
    ("service", "rate"),
    [(simulated.shaper(40, burst=200), 80.0), (simulated.fifo(64), 1500.0)],
    ids=["a burst of 200", "64 slots"],
)
def test_a_line_longer_than_the_largest_pulse_shows_in_a_step_that_is_too_much(
    service: simulated.Service, rate: float
) -> None:
    assert found(service, rate=rate, step_s=7.5 if rate < 100 else 1.0, probes=100, repeats=4) == [{Kind.QUEUE}] * SEEDS


@pytest.mark.parametrize("service", [simulated.refusing(8), simulated.healthy(0.5)], ids=["refusing", "without limit"])
def test_a_step_that_is_too_much_accuses_nobody_who_refuses_or_keeps_up(service: simulated.Service) -> None:
    assert found(service, rate=400.0, step_s=4.0, probes=100, repeats=4) == [set()] * SEEDS


def prompts_in_turn(begin_ms: float, prompt_ms: float, answer_ms: float, slots: int) -> Run:
    """Streams of which each begins ``prompt_ms`` after the one before it, or when one of ``slots`` is free."""
    rows, at = [(BASELINE, 0, 1, i, 2000.0 * i, begin_ms + i % 5) for i in range(20)], 50_000.0
    for group in range(1, 5):
        first = [begin_ms + prompt_ms * i + (begin_ms + answer_ms) * (i // slots) for i in range(16)]
        rows += [(PULSE, group, 16, i, at, first[i] + group % 3) for i in range(16)]
        at += 10_000.0
    run = simulated.build(rows)
    return replace(run, end=run.first + round(answer_ms * 1000), events=np.full(len(rows), 12))


def test_prompts_that_are_read_in_turn_are_no_queue_however_short_the_answers() -> None:
    findings = conclude(prompts_in_turn(40.0, 42.0, 60.0, slots=99))
    assert [each.kind for each in findings] == [Kind.SERIAL]
    assert findings[0].figures["effect_ms"].value > 4 * 100


def test_streams_that_begin_together_and_then_wait_for_slots_are_a_queue() -> None:
    assert [each.kind for each in conclude(prompts_in_turn(40.0, 1.0, 60.0, slots=4))] == [Kind.QUEUE]


def test_a_steady_load_hides_the_queue_that_a_pulse_shows() -> None:
    run = simulated.run(simulated.fifo(8), sizes=(1, 2, 4), rate=60.0)
    assert Kind.QUEUE not in {finding.kind for finding in conclude(run)}
