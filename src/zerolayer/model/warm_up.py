"""A few full steps before the first request: refusals need bounds, and weights need to be in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from zerolayer.model.cost import CostTable
from zerolayer.model.engine import Engine, Generation, StepPlan, chunk_of
from zerolayer.model.turns import Turns
from zerolayer.wire.schema import Sampling

_ROWS = 16
_TRIES = 6  # of one kind of step, where the machine is busy with something else
_TOKENS = 1 + _TRIES + 2 + 2  # of the prompt, and of each kind of step
_LEAST_SHARE = 0.3  # a quarter of the tokens, and their logits
_MARGIN = 1.25  # on the share of a chunk that is scored, which few steps say
_ALIKE = 1.25  # two steps within this of each other are what the engine takes; longer ones were disturbed


def measure(engine: Engine, cost: CostTable, clock_ns: Callable[[], int], turns: Turns | None = None) -> None:
    """Enter steps with up to 16 rows, with and without a prefill chunk, in ``cost``; before the step thread starts.

    ``turns``: with an engine that runs on the same cores.
    A step that something else on the machine made longer would be promised from as if it were the engine's own, and
    refuse everybody: each kind is tried until the two shortest agree, and only what is like them is entered.
    """
    info = engine.describe()
    rows = tuple(range(min(info.slots, _ROWS)))
    others = rows[1:]
    chunk = min(info.chunk_tokens, info.slot_tokens - _TOKENS)
    turn = turns or nullcontext()
    for slot in rows:
        _open(engine, slot, 1)
        with turn:
            engine.step(StepPlan((), slot, 1))

    def mixed(tokens: int = chunk, *, scored: bool = False) -> None:
        engine.close(0)
        _open(engine, 0, tokens, scored=scored)
        engine.step(StepPlan(others, 0, tokens))

    decoding = _tried(lambda: engine.step(StepPlan(rows)), clock_ns, turn, _TRIES)
    for elapsed_ns in _alike(decoding):
        cost.observe(decode_rows=len(rows), elapsed_ns=elapsed_ns)
    disturbed = max(decoding) > _ALIKE * min(decoding)
    chunks = _tried(mixed, clock_ns, turn, 2 if disturbed else 1)
    for elapsed_ns in _alike(chunks):  # a shorter chunk stands for a full one
        cost.observe(decode_rows=len(others), prefill_tokens=info.chunk_tokens, elapsed_ns=elapsed_ns)
    quarter = min(chunk_of(info.chunk_tokens, scored=True), chunk)
    scored = _tried(lambda: mixed(quarter, scored=True), clock_ns, turn, 2)
    # A bound of a plain chunk of as many tokens, for want of one that was measured: scoring costs more.
    cost.observe(decode_rows=len(others), prefill_tokens=quarter, elapsed_ns=min(*scored, *chunks))
    cost.scored_share = _share(min(scored) - min(decoding), min(chunks) - min(decoding))
    for slot in rows:
        engine.close(slot)


def _open(engine: Engine, slot: int, prompt: int, *, scored: bool = False) -> None:
    sampling = Sampling(temperature=0.0)
    asked = Generation(
        [0] * prompt, sampling, _TOKENS, ignore_eos=True, keep=False, prompt_logprobs=0 if scored else None
    )
    engine.open(slot, asked)


def _share(scored_ns: int, full_ns: int) -> float:
    """What a chunk that is scored adds, as a share of what a full one adds: with a margin, and within what can be."""
    if full_ns <= 0:
        return 1.0
    return min(1.0, max(_LEAST_SHARE, _MARGIN * scored_ns / full_ns))


def _tried(
    step: Callable[[], object], clock_ns: Callable[[], int], turn: AbstractContextManager[None], tries: int
) -> list[int]:
    """Times of ``step`` in the order of running."""
    taken: list[int] = []
    while len(taken) < tries and not (len(taken) > 1 and sorted(taken)[1] <= _ALIKE * min(taken)):
        with turn:
            started = clock_ns()
            step()
            taken.append(clock_ns() - started)
    return taken


def _alike(taken: list[int]) -> list[int]:
    """Those that are not much longer than the shortest."""
    return [elapsed for elapsed in taken if elapsed <= _ALIKE * min(taken)]
