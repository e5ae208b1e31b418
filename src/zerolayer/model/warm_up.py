"""A few full steps before the first request: refusals need bounds, weights need to be in memory."""

from __future__ import annotations

import time
from typing import Final

from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Engine, Generation, StepPlan
from zerolayer.wire.schema import Sampling

_MEASURED_ROWS: Final = 16  # the cost table scales from there
_MEASURED_TOKENS: Final = 8


def warm_up(engine: Engine, cost: CostTable) -> None:
    """Run the steps on an engine that nobody uses yet, and tell ``cost`` what they took."""
    info = engine.describe()
    rows = tuple(range(min(info.slots, _MEASURED_ROWS)))
    chunk = min(info.chunk_tokens, info.slot_tokens - _MEASURED_TOKENS)
    others = rows[1:]
    for slot in rows:
        prompt = [0] * (1 if slot else chunk)
        engine.open(slot, Generation(prompt, Sampling(temperature=0.0), _MEASURED_TOKENS, ignore_eos=True))
    for slot in others:
        engine.step(StepPlan((), slot, 1))
    for plan in (StepPlan(others, 0, chunk), StepPlan(rows), StepPlan(rows)):
        started = time.monotonic_ns()
        engine.step(plan)
        elapsed = time.monotonic_ns() - started
        cost.observe(decode_rows=len(plan.decode), prefill=plan.prefill_slot >= 0, elapsed_ns=elapsed)
    for slot in rows:
        engine.close(slot)
