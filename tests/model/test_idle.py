"""An engine without work takes no time."""

from __future__ import annotations

import threading
import time

from reference.engines import Engines
from reference.tiny_model import LLAMA
from zerolayer.model.engine import Generation
from zerolayer.model.letters import StepReport
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

SECONDS, SHARE = 0.5, 0.05


def test_an_engine_that_has_worked_and_rests_does_not_spin(engines: Engines) -> None:
    rested = threading.Event()

    def deliver(report: StepReport) -> None:
        if report.released:
            rested.set()

    clock = StepClock(engines.open(LLAMA, threads=2), deliver, time.monotonic_ns)
    clock.start()
    clock.admit(0, Generation([1, 2, 3], Sampling(temperature=0.0), 4, ignore_eos=True))
    assert rested.wait(30)
    time.sleep(0.1)  # a worker looks for the next step for some microseconds, then sleeps
    before = time.process_time()
    time.sleep(SECONDS)
    spent = time.process_time() - before
    clock.stop()
    assert spent < SHARE * SECONDS
