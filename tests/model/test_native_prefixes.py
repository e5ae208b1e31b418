"""Shared prefixes: nothing is computed twice, and not a bit of a result changes."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.engines import Engines
from reference.schedule import Run, alone, slotless, together
from reference.tiny_model import LLAMA_64, SMOL
from zerolayer.errors import EngineFailed
from zerolayer.model import _native
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.letters import StepReport
from zerolayer.model.native_engine import NativeEngine
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

SAMPLING = Sampling(temperature=0.8, seed=11, top_logprobs=2)


def prompt(tokens: int, seed: int = 1) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(20, 290) for _ in range(tokens)]


def generation(token_ids: list[int], tokens: int = 6, salt: bytes = b"") -> Generation:
    return Generation(token_ids, SAMPLING, tokens, ignore_eos=True, salt=salt)


@pytest.fixture
def plain(engines: Engines) -> NativeEngine:
    return engines.open(SMOL)


@pytest.fixture
def sharing(engines: Engines) -> NativeEngine:
    return engines.open(SMOL, prefixes=3, prefix_tokens=64)


def shared_tokens(engine: NativeEngine, token_ids: list[int], salt: bytes = b"") -> int:
    engine.open(3, generation(token_ids, salt=salt))
    shared = len(token_ids) - engine.prefill_left(3)
    engine.close(3)
    return shared


def test_a_repeated_prompt_starts_behind_what_was_computed(sharing: NativeEngine) -> None:
    alone(sharing, generation(prompt(50)))
    assert shared_tokens(sharing, prompt(50)) == 48


def test_a_repeated_prompt_has_the_same_bits(plain: NativeEngine, sharing: NativeEngine) -> None:
    alone(sharing, generation(prompt(50)))
    assert alone(sharing, generation(prompt(50))) == alone(plain, generation(prompt(50)))


def test_a_prompt_that_goes_on_differently_has_the_same_bits(plain: NativeEngine, sharing: NativeEngine) -> None:
    other = prompt(50)[:40] + prompt(20, seed=2)
    alone(sharing, generation(prompt(50)))
    assert shared_tokens(sharing, other) == 32
    assert alone(sharing, generation(other)) == alone(plain, generation(other))


def test_a_prefix_that_was_itself_shared_can_be_kept(plain: NativeEngine, sharing: NativeEngine) -> None:
    longer = prompt(34) + prompt(26, seed=2)
    alone(sharing, generation(prompt(34)))
    alone(sharing, generation(longer))
    assert shared_tokens(sharing, longer) == 48
    assert alone(sharing, generation(longer)) == alone(plain, generation(longer))


def test_several_slots_share_one_prefix_at_once(plain: NativeEngine, sharing: NativeEngine) -> None:
    alone(sharing, generation(prompt(50)))
    requests = {slot: generation(prompt(48) + prompt(5, seed=slot)) for slot in range(4)}
    expected = {slot: alone(plain, request) for slot, request in requests.items()}
    assert together(sharing, requests) == expected


def test_a_draft_is_kept_for_the_question_that_begins_like_it(plain: NativeEngine, sharing: NativeEngine) -> None:
    reports: list[StepReport] = []
    clock = StepClock(sharing, reports.append, time.monotonic_ns)
    clock.start()
    draft = sharing.describe().slots  # the engine's own slot
    clock.admit(draft, Generation(prompt(50), Sampling(temperature=0.0), 1, ignore_eos=True))
    deadline = time.monotonic() + 30
    while not any(draft in report.released for report in reports):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    clock.stop()
    question = prompt(50)[:44] + prompt(10, seed=2)
    assert shared_tokens(sharing, question) == 32
    assert alone(sharing, generation(question)) == alone(plain, generation(question))


def test_another_salt_computes_for_itself(sharing: NativeEngine) -> None:
    alone(sharing, generation(prompt(50), salt=b"a"))
    assert shared_tokens(sharing, prompt(50), salt=b"b") == 0


def test_a_constant_is_shared_with_every_salt(plain: NativeEngine, sharing: NativeEngine) -> None:
    sharing.keep_constant(prompt(40))
    request = generation(prompt(50), salt=b"a")
    assert shared_tokens(sharing, prompt(50), salt=b"b") == 32
    assert alone(sharing, request) == alone(plain, request)


def test_a_prompt_that_was_cancelled_before_it_was_complete_is_not_kept(sharing: NativeEngine) -> None:
    sharing.open(0, generation(prompt(50)))
    sharing.close(0)
    assert shared_tokens(sharing, prompt(50)) == 0


def test_a_prompt_is_kept_while_its_answer_still_runs(plain: NativeEngine, sharing: NativeEngine) -> None:
    expected = {slot: alone(plain, generation(prompt(50), tokens=4 + slot)) for slot in range(2)}
    run = Run(sharing)
    run.admit(0, generation(prompt(50), tokens=4))
    while run.prefilling():
        run.step(StepPlan((), 0, min(16, sharing.prefill_left(0))))
    run.admit(1, generation(prompt(50), tokens=5))
    assert sharing.prefill_left(1) == 2
    run.to_the_end()
    assert {slot: slotless(tokens) for slot, tokens in run.tokens.items()} == expected


def test_what_an_entry_holds_is_kept_before_a_longer_prompt_is_read_to_its_end(
    plain: NativeEngine, sharing: NativeEngine
) -> None:
    sharing.open(0, generation(prompt(100)))
    for _ in range(2):
        assert shared_tokens(sharing, prompt(100)) == 0
        sharing.step(StepPlan((), 0, 32))
    sharing.close(0)
    assert shared_tokens(sharing, prompt(100)) == 64
    assert alone(sharing, generation(prompt(100))) == alone(plain, generation(prompt(100)))


def test_a_slot_may_be_used_again_at_once_by_another_prompt(plain: NativeEngine, sharing: NativeEngine) -> None:
    for seed in (1, 2, 1):
        assert alone(sharing, generation(prompt(40, seed))) == alone(plain, generation(prompt(40, seed)))


def test_a_step_that_is_refused_keeps_nothing(sharing: NativeEngine) -> None:
    sharing.open(0, generation(prompt(32)))
    with pytest.raises(EngineFailed):
        sharing.step(StepPlan((2,), 0, 32))  # slot 2 is not open
    sharing.close(0)
    assert shared_tokens(sharing, prompt(32)) == 0


def test_what_is_kept_in_changing_numbers_of_threads_has_the_same_bits(engines: Engines) -> None:
    sharing = engines.open(LLAMA_64, threads=3, prefixes=2, prefix_tokens=64)
    sharing._live.follow_threads([1, 3, 2])
    first = alone(sharing, generation(prompt(60)))
    assert shared_tokens(sharing, prompt(60)) == 48
    assert alone(sharing, generation(prompt(60))) == first


@pytest.mark.parametrize("kernels", _native.kernel_sets())
def test_every_kernel_set_reads_a_shared_prefix_alike(engines: Engines, kernels: str) -> None:
    sharing = engines.open(LLAMA_64, kernels=kernels, prefixes=1, prefix_tokens=64, threads=2)
    alone(sharing, generation(prompt(40)))
    shared = alone(sharing, generation(prompt(40)))
    assert shared == alone(engines.open(LLAMA_64, kernels="portable"), generation(prompt(40)))


@pytest.fixture(scope="module")
def pair(tiny_models) -> tuple[NativeEngine, NativeEngine]:
    engines = Engines(tiny_models)
    yield engines.open(SMOL), engines.open(SMOL, prefixes=2, prefix_tokens=48)
    engines.shutdown()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 70), st.integers(0, 2), st.integers(1, 30)), max_size=6))
def test_whatever_came_before_a_request_has_the_bits_of_a_solo_run(
    pair: tuple[NativeEngine, NativeEngine], requests: list[tuple[int, int, int, int]]
) -> None:
    plain, sharing = pair
    for start, length, rest, rest_length in requests:
        token_ids = prompt(length, seed=start) + prompt(rest_length, seed=100 + rest)
        request = generation(token_ids, tokens=2)
        expected: list[SampledToken] = alone(plain, request)
        assert alone(sharing, request) == expected
