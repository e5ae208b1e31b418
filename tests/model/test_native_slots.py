"""Slots of the native engine: how generations end, and that a closed one leaves nothing behind."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference.engines import Engines, TinyModels
from reference.schedule import Run, alone, slotless
from reference.tiny_model import CONSTANT, EOS_ID, LLAMA_64, SMOL
from zerolayer.errors import EngineFailed
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.native_engine import NativeEngine
from zerolayer.wire.schema import FinishReason, Sampling

GREEDY = Sampling(temperature=0)
PROMPT = [50, 51, 52, 53, 54, 55, 56]
SLOTS, SLOT_TOKENS, CHUNK = 3, 64, 8


@pytest.fixture
def engine(engines: Engines) -> NativeEngine:
    return engines.open(SMOL, slots=SLOTS, slot_tokens=SLOT_TOKENS, chunk_tokens=CHUNK)


def ending(engine: NativeEngine, generation: Generation) -> tuple[int, FinishReason | None]:
    tokens = alone(engine, generation)
    assert all(token.finish is None for token in tokens[:-1])
    return len(tokens), tokens[-1].finish


@pytest.mark.parametrize("max_tokens", [1, 2, 9, SLOT_TOKENS - len(PROMPT)])
def test_a_generation_ends_at_max_tokens(engine: NativeEngine, max_tokens: int) -> None:
    assert ending(engine, Generation(PROMPT, GREEDY, max_tokens, ignore_eos=True)) == (max_tokens, FinishReason.LENGTH)


def often_ends(engines: Engines, ignore_eos: bool) -> list[SampledToken]:
    """400 tokens of a model that chooses the end of sequence about once in 300, unless it stops before."""
    engine = engines.open(CONSTANT, slot_tokens=1024)
    return alone(engine, Generation(PROMPT, Sampling(temperature=2.0, seed=4), 1000, ignore_eos=ignore_eos))


def test_an_end_of_sequence_token_ends_a_generation(engines: Engines) -> None:
    tokens = often_ends(engines, ignore_eos=False)
    assert tokens[-1].token_id == EOS_ID
    assert tokens[-1].finish is FinishReason.STOP
    assert EOS_ID not in [token.token_id for token in tokens[:-1]]


def test_ignore_eos_goes_on(engines: Engines) -> None:
    stopped, tokens = (often_ends(engines, ignore_eos=ignore) for ignore in (False, True))
    assert len(tokens) == 1000
    assert tokens[-1].finish is FinishReason.LENGTH
    assert tokens[: len(stopped) - 1] == stopped[:-1]


def test_an_end_of_sequence_token_at_the_last_position_counts_as_stop(engines: Engines) -> None:
    count = len(often_ends(engines, ignore_eos=False))
    engine = engines.open(CONSTANT, slot_tokens=1024)
    assert ending(engine, Generation(PROMPT, Sampling(temperature=2.0, seed=4), count)) == (count, FinishReason.STOP)


def test_prefill_left_counts_down_to_the_first_token(engine: NativeEngine) -> None:
    run = Run(engine)
    run.admit(1, Generation(PROMPT, GREEDY, 3, ignore_eos=True))
    seen = [engine.prefill_left(1)]
    seen += [(run.step(StepPlan((), 1, 3)), engine.prefill_left(1))[1] for _ in range(2)]
    assert seen == [7, 4, 1]
    assert [token.slot for token in run.step(StepPlan((), 1, 1))] == [1]


def test_a_step_yields_a_token_for_every_decode_slot_and_for_a_completed_prompt(engine: NativeEngine) -> None:
    run = Run(engine)
    for slot in range(SLOTS):
        run.admit(slot, Generation(PROMPT, GREEDY, 5, ignore_eos=True))
    for slot in (2, 0):
        run.step(StepPlan((), slot, len(PROMPT)))
    assert sorted(token.slot for token in run.step(StepPlan((0, 2), 1, 3))) == [0, 2]
    assert sorted(token.slot for token in run.step(StepPlan((2,), 1, 4))) == [1, 2]


def test_close_is_idempotent_and_an_engine_starts_with_free_slots(engine: NativeEngine) -> None:
    for slot in range(SLOTS):
        engine.close(slot)
        engine.close(slot)
    assert len(alone(engine, Generation(PROMPT, GREEDY, 4, ignore_eos=True))) == 4


def test_opening_a_slot_in_use_is_refused_and_harms_nothing(engine: NativeEngine) -> None:
    generation = Generation(PROMPT, GREEDY, 6, ignore_eos=True)
    run = Run(engine)
    run.admit(0, generation)
    run.step(StepPlan((), 0, 5))
    with pytest.raises(EngineFailed):
        engine.open(0, generation)
    run.to_the_end()
    assert slotless(run.tokens[0]) == alone(engine, generation)


@pytest.mark.parametrize(
    "plan",
    [
        StepPlan((0,)),  # its prompt is not complete
        StepPlan((1,)),  # not open
        StepPlan((SLOTS,)),
        StepPlan((-1,)),
        StepPlan((), 0, len(PROMPT) + 1),
        StepPlan((), 0, CHUNK + 1),
        StepPlan((), 1, 1),
        StepPlan((), SLOTS, 1),
        StepPlan((0, 0)),
    ],
    ids=str,
)
def test_an_impossible_plan_is_refused_and_harms_nothing(engine: NativeEngine, plan: StepPlan) -> None:
    generation = Generation(PROMPT, GREEDY, 6, ignore_eos=True)
    run = Run(engine)
    run.admit(0, generation)
    run.step(StepPlan((), 0, 2))
    with pytest.raises(EngineFailed):
        engine.step(plan)
    run.to_the_end()
    assert slotless(run.tokens[0]) == alone(engine, generation)


@pytest.mark.parametrize("token_id", [-1, 307, 2**31 - 1])
def test_a_token_id_outside_the_vocabulary_is_refused(engine: NativeEngine, token_id: int) -> None:
    with pytest.raises(EngineFailed):
        engine.open(0, Generation([5, token_id], GREEDY, 4))


def test_a_generation_that_cannot_fit_its_slot_is_refused(engine: NativeEngine) -> None:
    with pytest.raises(EngineFailed):
        engine.open(0, Generation(PROMPT, GREEDY, SLOT_TOKENS - len(PROMPT) + 1))


def test_an_engine_describes_itself(engine: NativeEngine) -> None:
    info = engine.describe()
    assert (info.slots, info.slot_tokens, info.chunk_tokens, info.threads, info.vocabulary) == (
        SLOTS,
        SLOT_TOKENS,
        CHUNK,
        1,
        307,
    )


def test_shutdown_is_idempotent(engines: Engines) -> None:
    engine = engines.open(SMOL)
    engine.shutdown()
    engine.shutdown()
    with pytest.raises(EngineFailed):
        engine.open(0, Generation(PROMPT, GREEDY, 4))


@functools.cache
def shared_engines() -> tuple[NativeEngine, NativeEngine]:
    """One engine that hypothesis works on, one that serves solo runs."""
    folder = tempfile.mkdtemp(prefix="zerolayer-test-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    opened = Engines(TinyModels(Path(folder)))
    shape = dataclasses.replace(LLAMA_64, layers=1)
    sizes = {"slots": SLOTS, "slot_tokens": SLOT_TOKENS, "chunk_tokens": CHUNK}
    return opened.open(shape, **sizes), opened.open(shape, **sizes)


@functools.cache
def solo(number: int) -> list[SampledToken]:
    """Generation ``number`` with the engine to itself."""
    return alone(shared_engines()[1], generation(number), chunk=CHUNK)


def generation(number: int) -> Generation:
    """One of a few dozen generations, all different."""
    sampling = Sampling(
        temperature=(0.0, 1.0)[number % 2],
        frequency_penalty=(0.0, 0.5)[number // 2 % 2],
        repetition_penalty=(1.0, 1.3)[number // 4 % 2],
        seed=number,
        top_logprobs=(None, 3)[number % 2],
    )
    prompt = [int(i) for i in np.random.default_rng(number).integers(3, 307, 1 + number % 37)]
    return Generation(prompt, sampling, 1 + number % 9, ignore_eos=True)


class AnyScheduleWithCancels(RuleBasedStateMachine):
    """Open, prefill, decode and cancel in any order: what a slot yields is always the start of its solo run."""

    @initialize()
    def start(self) -> None:
        self.run = Run(shared_engines()[0])
        self.numbers: dict[int, int] = {}
        for slot in range(SLOTS):
            self.run.engine.close(slot)

    @precondition(lambda self: len(self.run.open) < SLOTS)
    @rule(number=st.integers(0, 47), choice=st.integers(0, SLOTS - 1))
    def open(self, number: int, choice: int) -> None:
        free = [slot for slot in range(SLOTS) if slot not in self.run.open]
        slot = free[choice % len(free)]
        self.run.admit(slot, generation(number))
        self.numbers[slot] = number

    @precondition(lambda self: bool(self.run.open))
    @rule(choice=st.integers(0, SLOTS - 1))
    def cancel(self, choice: int) -> None:
        self.run.drop(sorted(self.run.open)[choice % len(self.run.open)])

    @precondition(lambda self: bool(self.run.open))
    @rule(
        skip=st.sets(st.integers(0, SLOTS - 1), max_size=1),
        choice=st.integers(0, SLOTS - 1),
        chunk=st.integers(1, CHUNK),
    )
    def step(self, skip: set[int], choice: int, chunk: int) -> None:
        decode = [slot for slot in self.run.decoding() if slot not in skip]
        waiting = self.run.prefilling()
        slot = waiting[choice % len(waiting)] if waiting else -1
        tokens = min(chunk, self.run.engine.prefill_left(slot)) if waiting else 0
        if decode or waiting:
            self.run.step(StepPlan(decode, slot, tokens))

    @invariant()
    def every_slot_holds_the_start_of_its_solo_run(self) -> None:
        for slot, number in self.numbers.items():
            tokens = slotless(self.run.tokens[slot])
            assert tokens == solo(number)[: len(tokens)]


TestAnyScheduleWithCancels = AnyScheduleWithCancels.TestCase
TestAnyScheduleWithCancels.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
