"""Whatever arrives, is cancelled or shares a step: a request has the bits of its solo run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.engines import Engines, TinyModels
from reference.schedule import Run, alone, slotless
from reference.tiny_model import LLAMA_64, QWEN2
from zerolayer.model import _native
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.native_engine import NativeEngine
from zerolayer.wire.schema import Sampling

SLOTS, CHUNK = 4, 32
# Greedy and seeded, with and without filters, penalties and logprobs; prompts of which some begin alike.
SAMPLINGS = (
    Sampling(temperature=0.0, top_logprobs=5),
    Sampling(temperature=0.9, seed=1),
    Sampling(temperature=0.7, top_p=0.9, top_k=30, seed=2, top_logprobs=20),
    Sampling(temperature=1.2, min_p=0.05, repetition_penalty=1.2, seed=3, top_logprobs=0),
    Sampling(temperature=0.0, presence_penalty=0.5, frequency_penalty=0.5, top_logprobs=2),
)
JOBS = tuple(
    Generation([(11 * at + (at > 20) * number) % 280 + 20 for at in range(7 + 13 * number)], sampling, 3 + number, True)
    for number, sampling in enumerate(SAMPLINGS)
)


class Side(msgspec.Struct):
    """An engine that many schedules run on, and each job's solo run."""

    engine: NativeEngine
    solo: list[list[SampledToken]]


class Turn(msgspec.Struct, frozen=True):
    """What happens before a step, and the step: ``mix`` chooses its rows."""

    arrives: int | None
    leaves: int | None
    mix: int
    chunk: int


turns = st.builds(
    Turn,
    st.none() | st.integers(0, len(JOBS) - 1),
    st.none() | st.none() | st.integers(0, SLOTS - 1),
    st.integers(0, (1 << SLOTS) - 1),
    st.integers(1, CHUNK),
)


@pytest.fixture(scope="module", params=[(LLAMA_64, 2, None), (QWEN2, 1, "portable")], ids=["best kernels", "portable"])
def side(request: pytest.FixtureRequest, tiny_models: TinyModels) -> Iterator[Side]:
    """Solo runs are on another engine, with other kernels where there are any, one thread and no shared prefixes."""
    shape, threads, kernels = request.param
    engines = Engines(tiny_models)
    alone_with = "portable" if kernels is None else _native.kernel_sets()[0]
    solo = engines.open(shape, slots=1, kernels=alone_with)
    busy = engines.open(shape, slots=SLOTS, kernels=kernels, threads=threads, prefixes=2, prefix_tokens=48)
    yield Side(busy, [alone(solo, job) for job in JOBS])
    engines.shutdown()


@settings(max_examples=30, deadline=None)
@given(st.lists(turns, max_size=40))
def test_any_schedule_gives_the_bits_of_solo_runs(side: Side, schedule: list[Turn]) -> None:
    run, job_of = Run(side.engine), dict[int, int]()
    for turn in schedule:
        if turn.leaves in run.open:
            run.drop(turn.leaves)
        free = [slot for slot in range(SLOTS) if slot not in run.open]
        if turn.arrives is not None and free:
            _check(side, run, job_of, free[0])
            run.admit(free[0], JOBS[turn.arrives])
            job_of[free[0]] = turn.arrives
        decode = [slot for slot in run.decoding() if turn.mix >> slot & 1]
        prefill = run.prefilling()
        slot = prefill[turn.mix % len(prefill)] if prefill else -1
        left = side.engine.prefill_left(slot) if prefill else 0
        if decode or prefill:
            run.step(StepPlan(decode, slot, min(left, turn.chunk)))
    run.to_the_end()
    for slot in job_of:
        _check(side, run, job_of, slot)


def _check(side: Side, run: Run, job_of: dict[int, int], slot: int) -> None:
    """What ``slot`` gave last is its job's solo run, or the beginning of it where it was cancelled."""
    if slot in job_of:
        given_tokens = slotless(run.tokens[slot])
        assert given_tokens == side.solo[job_of[slot]][: len(given_tokens)]


def test_finished_jobs_are_whole(side: Side) -> None:
    """Keeps the test above honest: it compares beginnings."""
    for job, solo in zip(JOBS, side.solo, strict=True):
        assert len(solo) == job.max_tokens
        assert alone(side.engine, job) == solo
