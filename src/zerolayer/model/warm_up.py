"""A few full steps before the first request: refusals need bounds, and weights need to be in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from zerolayer.model import cost_cache
from zerolayer.model.cost import CostTable
from zerolayer.model.cost_cache import StepTimes
from zerolayer.model.engine import Engine, Generation, StepPlan, chunk_of
from zerolayer.model.shared_cores import ALONE, SharedCores, Turn
from zerolayer.wire.schema import Sampling

_ROWS: Final = 16
_TRIES: Final = 6  # of one kind of step, where the machine is busy with something else
_TOKENS: Final = 1 + _TRIES + 2 + 2  # of the prompt, and of each kind of step
_LEAST_SHARE: Final = 0.3  # a quarter of the tokens, and their logits
_MARGIN: Final = 1.25  # on the share of a chunk that is scored, which few steps say
_ALIKE: Final = 1.25  # two steps within this of each other are what the engine takes; longer ones were disturbed
_CHECKS: Final = 8  # steps of one slot
_SAME: Final = 1.5  # a step of one slot within this of the one that was kept: the machine is as it was


def measure(
    engine: Engine,
    cost: CostTable,
    clock_ns: Callable[[], int],
    kept: Path | None = None,
    cores: SharedCores | None = None,
) -> None:
    """Enter what steps take in ``cost``; before the step thread starts.

    With ``kept`` the times of the last start are entered, if a step of one slot still takes what it took then; steps
    that requests run correct them. Else they are measured, which takes half a second on a small model, and kept.
    ``cores``: with an engine that uses the same ones.
    """
    turn = cores or ALONE
    times = None if kept is None else cost_cache.read(kept)
    if times is None or not _still(engine, times, clock_ns, turn):
        times = _measured(engine, clock_ns, turn)
        if kept is not None:
            cost_cache.write(kept, times)
    for decode_rows, tokens, elapsed_ns in times.steps:
        cost.observe(decode_rows=decode_rows, prefill_tokens=tokens, elapsed_ns=elapsed_ns)
    cost.scored_share = times.scored_share


def _still(engine: Engine, times: StepTimes, clock_ns: Callable[[], int], turn: Turn) -> bool:
    """Whether a step of one slot takes what it took: the first that does will do, as others may be disturbed."""
    now = _alone_ns(engine, clock_ns, turn, int(_SAME * times.alone_ns))
    return now <= _SAME * times.alone_ns and times.alone_ns <= _SAME * now


def _alone_ns(engine: Engine, clock_ns: Callable[[], int], turn: Turn, short_ns: int = 0) -> int:
    """The shortest of a few steps of one slot; none is run after one of ``short_ns`` or less."""
    _open(engine, 0, 1)
    with turn:
        engine.step(StepPlan((), 0, 1))
    taken: list[int] = []
    while len(taken) < _CHECKS and (not taken or taken[-1] > short_ns):
        taken += _tried(lambda: engine.step(StepPlan((0,))), clock_ns, turn, 1)
    engine.close(0)
    return max(1, min(taken))


def _measured(engine: Engine, clock_ns: Callable[[], int], turn: Turn) -> StepTimes:
    """Steps with up to 16 rows, with and without a prefill chunk.

    A step that something else on the machine made longer would be promised from as if it were the engine's own, and
    refuse everybody: each kind is tried until the two shortest agree, and only what is like them is entered.
    """
    info = engine.describe()
    rows = tuple(range(min(info.slots, _ROWS)))
    others = rows[1:]
    chunk = min(info.chunk_tokens, info.slot_tokens - _TOKENS)
    for slot in rows:
        _open(engine, slot, 1)
        with turn:
            engine.step(StepPlan((), slot, 1))

    def mixed(tokens: int = chunk, *, scored: bool = False) -> None:
        engine.close(0)
        _open(engine, 0, tokens, scored=scored)
        engine.step(StepPlan(others, 0, tokens))

    decoding = _tried(lambda: engine.step(StepPlan(rows)), clock_ns, turn, _TRIES)
    steps = [(len(rows), 0, elapsed_ns) for elapsed_ns in _alike(decoding)]
    disturbed = max(decoding) > _ALIKE * min(decoding)
    chunks = _tried(mixed, clock_ns, turn, 2 if disturbed else 1)
    # A shorter chunk stands for a full one.
    steps += [(len(others), info.chunk_tokens, elapsed_ns) for elapsed_ns in _alike(chunks)]
    quarter = min(chunk_of(info.chunk_tokens, scored=True), chunk)
    scored = _tried(lambda: mixed(quarter, scored=True), clock_ns, turn, 2)
    # A bound of a plain chunk of as many tokens, for want of one that was measured: scoring costs more.
    steps.append((len(others), quarter, min(*scored, *chunks)))
    share = _share(min(scored) - min(decoding), min(chunks) - min(decoding))
    for slot in rows:
        engine.close(slot)
    return StepTimes(steps, share, _alone_ns(engine, clock_ns, turn))


def _open(engine: Engine, slot: int, prompt: int, *, scored: bool = False) -> None:
    sampling = Sampling(temperature=0.0)
    scores = 0 if scored else None
    # Whatever an earlier run has kept: what is measured is a chunk of so many tokens.
    asked = Generation([0] * prompt, sampling, _TOKENS, ignore_eos=True, keep=False, whole=True, prompt_logprobs=scores)
    engine.open(slot, asked)


def _share(scored_ns: int, full_ns: int) -> float:
    """What a chunk that is scored adds, as a share of what a full one adds: with a margin, and within what can be."""
    if full_ns <= 0:
        return 1.0
    return min(1.0, max(_LEAST_SHARE, _MARGIN * scored_ns / full_ns))


def _tried(step: Callable[[], object], clock_ns: Callable[[], int], turn: Turn, tries: int) -> list[int]:
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
