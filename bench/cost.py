#!/usr/bin/env python3
"""What a step takes, what slots cost each other, and how often a step takes longer than the cost table promised.

First the time of a decode step by program, occupancy and context, and of it T(1) / T(slots). Then all slots are kept
busy with requests of random lengths, and every step is held against the bound that the table gave for it before it.

    python bench/cost.py --json bench/results/cost.json
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from in_process import decode_ns, loaded, machine, options, show, some_ids, write

from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Engine, Generation
from zerolayer.model.letters import StepReport
from zerolayer.model.step_clock import StepClock
from zerolayer.model.warm_up import measure
from zerolayer.wire.schema import Sampling

TIMES = {
    "program": "program",
    "slots": "slots",
    "context": "context",
    "steps": "steps:,",
    "p50 ms": "p50_ms:.2f",
    "p99 ms": "p99_ms:.2f",
    "p99.9 ms": "p999_ms:.2f",
}
BOUND = {
    "T(1)/T(slots)": "ratio:.3f",
    "steps": "steps:,",
    "over the bound": "misses:,",
    "miss rate": "miss_rate:.2e",
    "worst / bound": "worst:.2f",
}
PROGRAMS = {
    "greedy": Sampling(temperature=0.0),
    "full": Sampling(0.7, top_p=0.9, top_k=40, repetition_penalty=1.1),
}


def percentile_ms(times: list[int], share: float) -> float:
    """Of nanoseconds."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] / 1e6


def step_times(engine: Engine, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """By program, occupancy, and which half of a slot the context ends in. The first rows of all are the shortest."""
    half = given.slot_tokens // 2
    for slots in sorted({1, given.slots // 4, given.slots}):
        for program, sampling in PROGRAMS.items():
            for context, prompt in ((f"up to {half}", 8), (f"up to {2 * half}", half)):
                steps, times = half - 16, list[int]()

                def asked(
                    slot: int, sampling: Sampling = sampling, prompt: int = prompt, steps: int = steps
                ) -> Generation:
                    return Generation(some_ids(slot, prompt), sampling, steps + 2, ignore_eos=True, keep=False)

                while len(times) < given.table_steps:
                    times += decode_ns(engine, slots, asked, steps)
                yield {
                    "program": program,
                    "slots": slots,
                    "context": context,
                    "steps": len(times),
                    "p50_ms": percentile_ms(times, 0.5),
                    "p99_ms": percentile_ms(times, 0.99),
                    "p999_ms": percentile_ms(times, 0.999),
                }


class Judge:
    """Holds each step against its bound before it becomes part of that."""

    def __init__(self, cost: CostTable) -> None:
        self._cost = cost
        self.steps = self.misses = 0
        self.worst = 0.0

    def step(self, report: StepReport) -> None:
        """Judge a step, then enter it."""
        rows, tokens, took = len(report.decode), report.prefill_tokens, report.ended_ns - report.started_ns
        if bound := self._cost.step_bound_ns(rows, tokens):
            self.steps += 1
            self.misses += took > bound
            self.worst = max(self.worst, took / bound)
        self._cost.observe(decode_rows=rows, prefill_tokens=tokens, elapsed_ns=took)


class Load:
    """Keeps every slot busy until the judge has seen enough. ``deliver`` is called on the step thread."""

    def __init__(self, engine: Engine, cost: CostTable, steps: int, seed: int) -> None:
        self._wanted, self._random = steps, random.Random(seed)
        self._longest = engine.describe().slot_tokens // 2
        self.judge = Judge(cost)
        self.clock = StepClock(engine, self.deliver, time.monotonic_ns)
        self.done = threading.Event()

    def admit(self, slot: int) -> None:
        """Begin a request of random size in ``slot``."""
        prompt = [self._random.randrange(100, 10_000) for _ in range(self._random.randint(1, self._longest))]
        tokens = self._random.randint(1, self._longest)
        self.clock.admit(slot, Generation(prompt, Sampling(0.7, top_p=0.9), tokens, ignore_eos=True, keep=False))

    def deliver(self, report: StepReport) -> None:
        """Judge the step, and fill the slots that came free."""
        self.judge.step(report)
        if self.judge.steps >= self._wanted:
            self.done.set()
            return
        for slot in report.released:
            self.admit(slot)


def watch(load: Load, wanted: int) -> None:
    """Until the load is over; says now and then how far it is."""
    began = time.monotonic()
    while not load.done.wait(10.0):
        left_s = (time.monotonic() - began) * (wanted / max(1, load.judge.steps) - 1)
        print(f"# {load.judge.steps:,} of {wanted:,} steps, about {left_s:.0f} s more", file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--slot-tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--table-steps", type=int, default=1_000, help="of each row of the table (default 1,000)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.slot_tokens < 128:
        parser.error("--slot-tokens must be at least 128")
    before, times = machine(), list[dict[str, Any]]()
    with loaded(slots=str(given.slots), slot_tokens=str(given.slot_tokens)) as model:
        engine, info = model.engine, model.engine.describe()
        for row in step_times(engine, given):
            times.append(row)
            print(f"# {row['program']}, {row['slots']} slots: {row['p50_ms']:.2f} ms", file=sys.stderr, flush=True)
        cost = CostTable(slots=info.slots, chunk_tokens=info.chunk_tokens)
        measure(engine, cost, time.monotonic_ns)
        load = Load(engine, cost, given.steps, given.seed)
        for slot in range(given.slots):
            load.admit(slot)
        load.clock.start()
        watch(load, given.steps)
        load.clock.stop()
    judge = load.judge
    of_all = next(
        row["p50_ms"] for row in reversed(times) if row["program"] == "greedy" and row["context"] == times[0]["context"]
    )
    kept = {
        "ratio": times[0]["p50_ms"] / of_all,
        "steps": judge.steps,
        "misses": judge.misses,
        "miss_rate": judge.misses / judge.steps,
        "worst": judge.worst,
    }
    show(TIMES, times)
    print()
    show(BOUND, [kept])
    write(given.json, "cost", before, [*times, kept])


if __name__ == "__main__":
    main()
