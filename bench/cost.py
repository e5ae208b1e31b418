#!/usr/bin/env python3
"""What slots cost each other, and how often a step or a request takes longer than the cost table promised.

First the time of a decode step with one slot and with all, T(1) / T(slots). Then all slots are kept busy with requests
of random lengths; every step is held against the bound that the table gave before it, and every request against what
was predicted when it began.
"""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time

from in_process import decode_ns, loaded, machine, options, show, write

from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Engine, Generation
from zerolayer.model.letters import StepReport
from zerolayer.model.step_clock import StepClock
from zerolayer.model.warm_up import measure
from zerolayer.wire.schema import Sampling

COLUMNS = {
    "slots": "slots",
    "T(1) ms": "one_ms:.3f",
    "T(slots) ms": "all_ms:.3f",
    "T(1)/T(slots)": "ratio:.3f",
    "steps": "steps:,",
    "over the bound": "step_misses:,",
    "miss rate": "step_miss_rate:.2e",
    "requests": "requests:,",
    "late": "request_misses:,",
    "worst / bound": "worst:.2f",
}


class Load:
    """Keeps every slot busy until ``steps`` steps have run. ``deliver`` is called on the step thread."""

    def __init__(self, engine: Engine, cost: CostTable, steps: int, seed: int) -> None:
        info = engine.describe()
        self._cost, self._wanted, self._random = cost, steps, random.Random(seed)
        self._longest = info.slot_tokens // 2
        self._due_ns: dict[int, int] = {}
        self._bounds = (cost.decode_bound_ns(), cost.mixed_bound_ns())
        self.clock = StepClock(engine, self.deliver, time.monotonic_ns, cost)
        self.done = threading.Event()
        self.steps = self.step_misses = self.requests = self.request_misses = 0
        self.worst = 0.0

    def admit(self, slot: int) -> None:
        """Begin a request of random size in ``slot``."""
        prompt = [self._random.randrange(100, 10_000) for _ in range(self._random.randint(1, self._longest))]
        tokens = self._random.randint(1, self._longest)
        bound = self._cost.predict_ns(prompt_tokens=len(prompt), max_tokens=tokens)
        self._due_ns[slot] = time.monotonic_ns() + bound
        self.requests += 1
        self.clock.admit(slot, Generation(prompt, Sampling(0.7, top_p=0.9), tokens, ignore_eos=True, keep=False))

    def deliver(self, report: StepReport) -> None:
        """Hold the step against the bounds as they were before it."""
        bound = self._bounds[report.prefill_slot >= 0]
        elapsed = report.ended_ns - report.started_ns
        if report.decode or report.prefill_slot >= 0:
            self.steps += 1
            self.step_misses += elapsed > bound
            self.worst = max(self.worst, elapsed / bound)
        self._bounds = (self._cost.decode_bound_ns(), self._cost.mixed_bound_ns())
        for slot in report.released:
            self.request_misses += report.ended_ns > self._due_ns[slot]
            if self.steps < self._wanted:
                self.admit(slot)
        if self.steps >= self._wanted:
            self.done.set()


def decode_ms(engine: Engine, slots: int, steps: int) -> float:
    """Median time of a step in which ``slots`` slots decode behind 64 tokens each."""

    def asked(slot: int) -> Generation:
        prompt = [100 + slot + at for at in range(64)]
        return Generation(prompt, Sampling(temperature=0.0), steps + 2, ignore_eos=True, keep=False)

    return statistics.median(decode_ns(engine, slots, asked, steps)) / 1e6


def watch(load: Load, wanted: int) -> None:
    """Until the load is over; says now and then how far it is."""
    began = time.monotonic()
    while not load.done.wait(10.0):
        left_s = (time.monotonic() - began) * (wanted / max(1, load.steps) - 1)
        print(f"# {load.steps:,} of {wanted:,} steps, about {left_s:.0f} s more", file=sys.stderr, flush=True)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--slot-tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.slot_tokens < 128:
        parser.error("--slot-tokens must be at least 128")
    before = machine()
    with loaded(slots=str(given.slots), slot_tokens=str(given.slot_tokens)) as model:
        engine, info = model.engine, model.engine.describe()
        one, full = (statistics.median(decode_ms(engine, slots, 16) for _ in range(3)) for slots in (1, given.slots))
        cost = CostTable(slots=info.slots, chunk_tokens=info.chunk_tokens)
        measure(engine, cost, time.monotonic_ns)
        load = Load(engine, cost, given.steps, given.seed)
        for slot in range(given.slots):
            load.admit(slot)
        load.clock.start()
        watch(load, given.steps)
        load.clock.stop()
    row = {
        "slots": given.slots,
        "one_ms": one,
        "all_ms": full,
        "ratio": one / full,
        "steps": load.steps,
        "step_misses": load.step_misses,
        "step_miss_rate": load.step_misses / load.steps,
        "requests": load.requests,
        "request_misses": load.request_misses,
        "worst": load.worst,
    }
    show(COLUMNS, [row])
    write(given.json_out, "cost", before, [row])


if __name__ == "__main__":
    main()
