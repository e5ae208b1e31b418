"""A process of its own that runs 1,000 steps and prints what they allocated, as JSON.

Arguments: the model file, kernel set, threads, and ``engine`` (the native engine alone, driven with plans made before)
or ``clock`` (the whole step clock, beside a cost table and a recorder). Beside the best program, every kind of sampling
is in the steps. ``count_allocations.c`` must be preloaded.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
import time
from pathlib import Path

from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Generation, StepPlan
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.gguf import GgufFile
from zerolayer.model.letters import StepReport
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.native_engine import NativeEngine
from zerolayer.model.recorder import Recorder
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

SLOTS, CHUNK, STEPS = 6, 16, 1000
WARM, WARM_CLOCK = 50, 1100  # steps before the count; the recorder's ring has gone round once
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(seed=1),
    Sampling(top_p=0.9, seed=2),
    Sampling(top_k=40, seed=3),
    Sampling(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.5, seed=4),
    Sampling(min_p=0.05, top_logprobs=5, seed=5),
)


class Counter:
    """Allocations of the C library and of Python's allocator between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def start(self) -> None:
        gc.collect()
        gc.disable()
        self._blocks = sys.getallocatedblocks()
        self._library.count_allocations_start()

    def stop(self) -> dict[str, int]:
        allocations = self._library.count_allocations_stop()
        return {"allocations": allocations, "blocks": sys.getallocatedblocks() - self._blocks}


def generation(slot: int, tokens: int) -> Generation:
    return Generation(range(1, 4 + slot), SAMPLINGS[slot], tokens, ignore_eos=True, keep=False)


def engine_alone(engine: NativeEngine, counter: Counter) -> dict[str, int]:
    """Steps with five decode rows of every sampling and a chunk of a long prompt."""
    native, tokens = engine._live, engine._tokens
    prompt = [1 + i % 50 for i in range(WARM + STEPS)]
    for slot in range(SLOTS):
        engine.open(slot, generation(slot, WARM + STEPS + 8))
        engine.step(StepPlan((), slot, engine.prefill_left(slot)))
    engine.open(SLOTS, Generation(prompt, SAMPLINGS[0], 1, keep=False))
    plan = list(range(SLOTS))
    for left in range(WARM + STEPS - 1, -1, -1):
        if left == STEPS:
            counter.start()
        native.step(tokens, plan, SLOTS, 1)
    return counter.stop()


def whole_clock(engine: NativeEngine, counter: Counter) -> dict[str, int]:
    """The same slots in the step clock; its reports are dropped as soon as they come."""
    steps, found, done = 0, {}, threading.Event()

    def deliver(report: StepReport) -> None:
        nonlocal steps
        steps += bool(report.decode)
        recorder.step(report)
        elapsed = report.ended_ns - report.started_ns
        cost.observe(decode_rows=len(report.decode), prefill_tokens=report.prefill_tokens, elapsed_ns=elapsed)
        if steps == WARM_CLOCK:
            counter.start()
        elif steps == WARM_CLOCK + STEPS:
            found.update(counter.stop())
            done.set()

    cost = CostTable(slots=SLOTS, chunk_tokens=CHUNK)
    recorder = Recorder(time.monotonic_ns, cost.step_bound_ns)
    clock = StepClock(engine, deliver, time.monotonic_ns)
    for slot in range(SLOTS):
        clock.admit(slot, generation(slot, WARM_CLOCK + STEPS + 100))
    clock.start()
    assert done.wait(60)
    clock.stop()
    return found


def main(model: str, kernels: str, threads: str, kind: str) -> None:
    with GgufFile.open(Path(model)) as file:
        engine = NativeEngine.load(
            file,
            ModelConfig.from_gguf(file.metadata, file.tensors),
            EngineOptions(
                slots=SLOTS,
                slot_tokens=WARM_CLOCK + STEPS + 200,
                chunk_tokens=CHUNK,
                threads=int(threads),
                kernels=kernels,
            ),
        )
        print(json.dumps({"engine": engine_alone, "clock": whole_clock}[kind](engine, Counter())))
        engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
