"""Compute that is charged sums to wall time x cores, on engines that really run."""

from __future__ import annotations

import queue
import time

import pytest

from reference.engines import Engines
from reference.tiny_model import LLAMA_64
from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Engine, Generation
from zerolayer.model.letters import StepReport
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.step_clock import StepClock
from zerolayer.observe.compute import IDLE, ComputeMeter
from zerolayer.wire.schema import Sampling


def charged(engine: Engine) -> tuple[ComputeMeter, int, dict[int, int]]:
    """Run a load of three tenants; the meter, the wall time in nanoseconds, and what each slot was charged."""
    info = engine.describe()
    cost = CostTable(slots=info.slots, chunk_tokens=info.chunk_tokens)
    reports: queue.SimpleQueue[StepReport] = queue.SimpleQueue()
    clock = StepClock(engine, reports.put, time.monotonic_ns)
    began = time.monotonic_ns()
    meter = ComputeMeter(info.threads, info.slots, began)
    slots: dict[int, int] = {}
    clock.start()
    for slot in range(3):
        meter.begin(slot, f"tenant-{slot}")
        prompt = list(range(1, 10 + 30 * slot))
        clock.admit(slot, Generation(prompt, Sampling(temperature=0.0), 20 + slot, ignore_eos=True))
        time.sleep(0.02)
    ended: set[int] = set()
    while len(ended) < 3:
        report = reports.get(timeout=10)
        elapsed = report.ended_ns - report.started_ns
        cost.observe(decode_rows=len(report.decode), prefill_tokens=report.prefill_tokens, elapsed_ns=elapsed)
        share = cost.chunk_share(len(report.decode), report.prefill_tokens)
        charge = meter.step(report.started_ns, report.ended_ns, report.decode, report.prefill_slot, share)
        for slot in report.decode:
            slots[slot] = slots.get(slot, 0) + charge.row_ns
        if report.prefill_slot >= 0:
            slots[report.prefill_slot] = slots.get(report.prefill_slot, 0) + charge.chunk_ns
        ended.update(report.released)
    clock.stop()
    now = time.monotonic_ns()
    meter.rest(now)
    return meter, now - began, slots


@pytest.fixture(params=["mock", "native"])
def engine(request: pytest.FixtureRequest, engines: Engines) -> Engine:
    if request.param == "mock":
        return MockEngine(slots=4, slot_tokens=256, chunk_tokens=32, step_us=500, vocabulary=300)
    return engines.open(LLAMA_64, threads=2)


def test_charges_sum_to_wall_time_times_cores(engine: Engine) -> None:
    meter, wall_ns, slots = charged(engine)
    totals = meter.totals
    assert sum(totals.values()) == pytest.approx(wall_ns * meter.cores, rel=1e-3)
    assert {tenant: core_ns for tenant, core_ns in totals.items() if tenant != IDLE} == {
        f"tenant-{slot}": core_ns for slot, core_ns in slots.items()
    }
    assert min(slots.values()) > 0
