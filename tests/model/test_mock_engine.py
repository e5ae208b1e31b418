"""The mock engine keeps the promises that tests and benches rest on."""

from __future__ import annotations

import pytest

from zerolayer.errors import EngineFailed
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.mock_engine import MockEngine
from zerolayer.wire.schema import FinishReason, Sampling


def engine(**changes: object) -> MockEngine:
    arguments = {"slots": 4, "slot_tokens": 64, "chunk_tokens": 8, "step_us": 0, "vocabulary": 50} | changes
    return MockEngine(**arguments)


def run(mock: MockEngine, slot: int, generation: Generation) -> list[SampledToken]:
    mock.open(slot, generation)
    tokens = mock.step(StepPlan((), slot, len(generation.prompt)))
    while tokens[-1].finish is None:
        tokens += mock.step(StepPlan((slot,)))
    mock.close(slot)
    return tokens


def test_the_same_prompt_and_seed_give_the_same_tokens_in_any_slot() -> None:
    generation = Generation([1, 2, 3], Sampling(seed=7), 10)
    first = [token.token_id for token in run(engine(), 0, generation)]
    assert [token.token_id for token in run(engine(), 3, generation)] == first


def test_another_prompt_gives_other_tokens() -> None:
    first = [token.token_id for token in run(engine(), 0, Generation([1], Sampling(), 10))]
    assert [token.token_id for token in run(engine(), 0, Generation([2], Sampling(), 10))] != first


def test_reserved_ids_are_never_chosen() -> None:
    mock = engine(reserved_ids=range(49))
    tokens = run(mock, 0, Generation([1], Sampling(), 20))
    assert {token.token_id for token in tokens} == {49}


def test_a_token_comes_only_when_the_prompt_is_complete() -> None:
    mock = engine()
    mock.open(0, Generation([1] * 10, Sampling(), 5))
    assert mock.step(StepPlan((), 0, 8)) == []
    assert len(mock.step(StepPlan((), 0, 2))) == 1


def test_the_end_token_ends_a_generation_unless_it_is_to_be_ignored() -> None:
    every_id_ends = {"vocabulary": 1, "eos_id": 0}
    assert run(engine(**every_id_ends), 0, Generation([1], Sampling(), 9))[-1].finish is FinishReason.STOP
    ignored = run(engine(**every_id_ends), 0, Generation([1], Sampling(), 9, ignore_eos=True))
    assert len(ignored) == 9


def test_logprobs_come_when_asked_for() -> None:
    (token,) = run(engine(), 0, Generation([1], Sampling(top_logprobs=2), 1))
    assert token.logprob is not None
    assert len(token.logprob.top) == 2


def test_an_open_slot_cannot_be_opened_again() -> None:
    mock = engine()
    mock.open(0, Generation([1], Sampling(), 1))
    with pytest.raises(EngineFailed):
        mock.open(0, Generation([1], Sampling(), 1))


def test_a_step_sleeps_for_the_given_time() -> None:
    slept: list[float] = []
    run(engine(step_us=5_000, sleep=slept.append), 0, Generation([1], Sampling(), 3))
    assert slept == [0.005] * 3
