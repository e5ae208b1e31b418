"""The machine's own pace: what a fixed piece of work takes, on a clock that is passed in."""

from __future__ import annotations

import os
import threading

import pytest

from check.test_measure import Paper, measured
from zerolayer.check import pace
from zerolayer.check.run_file import BASELINE, PULSE


def test_the_pace_is_the_time_that_the_work_took() -> None:
    times = iter([0, 7_000_000, 10_000_000, 22_000_000])  # the first look touches the memory
    assert pace.MachinePace(lambda: next(times))() == 12_000


def test_every_processor_that_the_process_may_use_works(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = []
    monkeypatch.setattr(pace, "_work", lambda part: workers.append(threading.get_ident()))
    pace.MachinePace()
    assert len(workers) == min(pace.MOST_THREADS, len(os.sched_getaffinity(0)))


def test_a_run_keeps_the_pace_before_lone_requests_and_before_each_pulse() -> None:
    took = iter(range(1000))
    run, _ = measured(Paper(20.0, 4), pace=lambda: next(took), probes=30, repeats=3, largest_pulse=4, budget_s=0.0)
    assert (run.paces_ms(BASELINE) * 1000).tolist() == [0, 1, 2]
    assert len(run.paces_ms(PULSE)) == 3 * 3  # of 1, 2 and 4, three times


def test_a_run_that_nobody_timed_has_no_pace() -> None:
    run, _ = measured(Paper(20.0, 4), probes=12, repeats=3, largest_pulse=2)
    assert len(run.pace_took) == 0
