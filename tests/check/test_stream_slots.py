"""Streams that wait for slots, told by how many run at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from check import simulated
from zerolayer.check.findings import Kind
from zerolayer.check.report import conclude
from zerolayer.check.run_file import BASELINE, PULSE, Run
from zerolayer.check.stream_slots import most_at_once, waiting_streams

PROMPT, ANSWER = 20.0, 200.0  # ms


def streams(slots: int, *, in_turn: bool = False, sizes: tuple[int, ...] = (1, 2, 4, 12), noise: float = 4.0) -> Run:
    """A service of so many slots that serves in no order; ``in_turn``: prompts are read one after another."""
    rng = np.random.default_rng(3)
    rows: list[tuple[str, int, int, int, float, float]] = []
    ends: list[float] = []
    for number in range(30):
        rows.append((BASELINE, 0, 1, number, 1000.0 * number, PROMPT + rng.uniform(0, noise)))
        ends.append(rows[-1][4] + rows[-1][5] + ANSWER)
    at, group = 50_000.0, 0
    for _ in range(4):
        for size in sizes:
            group += 1
            free, read, begun = [at] * slots, at, []
            for _ in range(size):
                slot = int(np.argmin(free))
                start = max(free[slot], read) if in_turn else free[slot]
                first = start + PROMPT + rng.uniform(0, noise)
                read, free[slot] = first, first + ANSWER + rng.uniform(0, noise)
                begun.append((first, free[slot]))
            for position, place in enumerate(rng.permutation(size)):
                rows.append((PULSE, group, size, position, at, begun[place][0] - at))
                ends.append(begun[place][1])
            at += 10_000.0
    run = simulated.build(rows)
    return replace(run, end=np.round(np.array(ends) * 1000).astype(np.int64), events=np.full(len(rows), 12))


@pytest.mark.parametrize("slots", [1, 4, 6])
def test_a_queue_for_slots_is_found_and_counted_though_it_serves_in_no_order(slots: int) -> None:
    found = conclude(streams(slots))
    assert [finding.kind for finding in found] == [Kind.QUEUE]
    assert f"never more than {slots} ran" in found[0].text


@pytest.mark.parametrize("in_turn", [False, True])
def test_streams_that_all_run_at_once_are_no_queue(in_turn: bool) -> None:
    assert waiting_streams(streams(99, in_turn=in_turn)) is None


def test_prompts_that_are_read_in_turn_are_no_slots_though_short_answers_end_before_the_last_begins() -> None:
    assert waiting_streams(streams(99, in_turn=True, sizes=(1, 2, 4, 40))) is None


def test_a_pulse_that_fits_in_the_slots_shows_none() -> None:
    assert waiting_streams(streams(4, sizes=(1, 2, 4))) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=20))
def test_the_most_at_once_are_those_whom_some_moment_has(spans: list[tuple[int, int]]) -> None:
    first, end = np.array([(a, a + b) for a, b in spans], dtype=np.float64).T
    brute = max(sum(a <= moment < b for a, b in zip(first, end, strict=True)) for moment in range(90))
    assert most_at_once(first, end) == brute
