"""An engine without work takes no time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from reference.engines import Engines
from reference.tiny_model import LLAMA
from zerolayer.model.engine import Generation
from zerolayer.model.letters import StepReport
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

SECONDS, SHARE = 0.5, 0.05
THREADS = Path("/proc/self/task")


def spent_s(known: set[str]) -> float:
    """What all threads but the ``known`` ones have taken of the processors."""
    own = [folder for folder in THREADS.iterdir() if folder.name not in known]
    fields = [(folder / "stat").read_text().rpartition(")")[2].split() for folder in own]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def test_an_engine_that_has_worked_and_rests_does_not_spin(engines: Engines) -> None:
    rested = threading.Event()

    def deliver(report: StepReport) -> None:
        if report.released:
            rested.set()

    others = {folder.name for folder in THREADS.iterdir()}  # what earlier tests have left does not belong to the engine
    clock = StepClock(engines.open(LLAMA, threads=2), deliver, time.monotonic_ns)
    clock.start()
    clock.admit(0, Generation([1, 2, 3], Sampling(temperature=0.0), 4, ignore_eos=True))
    assert rested.wait(30)
    time.sleep(0.1)  # a worker looks for the next step for some microseconds, then sleeps
    before = spent_s(others)
    time.sleep(SECONDS)
    spent = spent_s(others) - before
    assert len({folder.name for folder in THREADS.iterdir()} - others) >= 2  # or nothing was looked at
    clock.stop()
    assert spent < SHARE * SECONDS
