"""A few full steps before the first request: refusals need bounds, and weights need to be in memory."""

from __future__ import annotations

from collections.abc import Callable

from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Engine, Generation, StepPlan
from zerolayer.wire.schema import Sampling

_ROWS = 16
_TOKENS = 4


def measure(engine: Engine, cost: CostTable, clock_ns: Callable[[], int]) -> None:
    """Enter steps with up to 16 rows, with and without a prefill chunk, in ``cost``; before the step thread starts."""
    info = engine.describe()
    rows = tuple(range(min(info.slots, _ROWS)))
    chunk = min(info.chunk_tokens, info.slot_tokens - _TOKENS)
    others = rows[1:]
    for slot in rows:
        prompt = [0] * (1 if slot else chunk)
        engine.open(slot, Generation(prompt, Sampling(temperature=0.0), _TOKENS, ignore_eos=True, keep=False))
    for slot in others:
        engine.step(StepPlan((), slot, 1))
    for plan in (StepPlan(others, 0, chunk), StepPlan(rows), StepPlan(rows)):
        started = clock_ns()
        engine.step(plan)
        tokens = info.chunk_tokens if plan.prefill_slot >= 0 else 0  # a shorter chunk stands for a full one
        cost.observe(decode_rows=len(plan.decode), prefill_tokens=tokens, elapsed_ns=clock_ns() - started)
    for slot in rows:
        engine.close(slot)
