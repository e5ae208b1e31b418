"""How likely the tokens of a prompt were, biased logits, and stop tokens that are held back."""

from __future__ import annotations

import numpy as np
import pytest

from reference.engines import Engines
from reference.schedule import alone, together
from reference.tiny_model import EOS_ID, LLAMA_64
from zerolayer.errors import EngineFailed
from zerolayer.model.engine import Generation, SampledToken
from zerolayer.model.native_engine import NativeEngine
from zerolayer.wire.schema import FinishReason, Sampling

PROMPT = [(7 * i) % 50 + 3 for i in range(43)]
GREEDY = Sampling(temperature=0.0, top_logprobs=0)


@pytest.fixture
def engine(engines: Engines) -> NativeEngine:
    return engines.open(LLAMA_64, prefixes=2, prefix_tokens=32)


def scored(top: int = 3) -> Generation:
    return Generation(PROMPT, GREEDY, 2, ignore_eos=True, prompt_logprobs=top)


def test_every_prompt_token_but_the_first_has_its_log_probability(engine: NativeEngine) -> None:
    logits = engine.logits(PROMPT).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    scores = alone(engine, scored())[0].prompt
    assert [score.token_id for score in scores] == PROMPT[1:]
    wanted = [logprobs[i, token] for i, token in enumerate(PROMPT[1:])]
    np.testing.assert_allclose([score.logprob for score in scores], wanted, atol=1e-5)
    assert [score.top[0].token_id for score in scores] == logprobs[:-1].argmax(axis=1).tolist()


def test_scores_are_the_same_bits_as_those_of_generated_tokens(engine: NativeEngine) -> None:
    written = alone(engine, Generation(PROMPT[:5], GREEDY, 30, ignore_eos=True))
    whole = [*PROMPT[:5], *[token.token_id for token in written]]
    read = alone(engine, Generation(whole, GREEDY, 1, prompt_logprobs=0))[0].prompt
    assert [score.logprob for score in read[4:]] == [token.logprob.logprob for token in written if token.logprob]


@pytest.mark.parametrize("chunk", [1, 3, 32])
def test_scores_do_not_depend_on_chunks_and_neighbours(engine: NativeEngine, chunk: int) -> None:
    beside = Generation(PROMPT[::-1], GREEDY, 20, ignore_eos=True)
    got = together(engine, {0: beside, 1: scored(), 2: beside}, chunk)
    assert got[1][0].prompt == alone(engine, scored(), chunk=8)[0].prompt


def test_a_kept_prefix_does_not_shorten_the_scores(engine: NativeEngine) -> None:
    for _ in range(3):  # the same prompt again and again: its beginning is kept
        alone(engine, Generation(PROMPT, GREEDY, 1))
    assert len(alone(engine, scored())[0].prompt) == len(PROMPT) - 1


def test_whoever_does_not_ask_gets_no_scores(engine: NativeEngine) -> None:
    assert alone(engine, Generation(PROMPT, GREEDY, 1))[0].prompt == ()


def ids(tokens: list[SampledToken]) -> list[int]:
    return [token.token_id for token in tokens]


def test_a_bias_moves_the_choice_and_not_the_reported_log_probability(engine: NativeEngine) -> None:
    plain = alone(engine, Generation(PROMPT, GREEDY, 1))[0]
    favoured = (plain.token_id + 1) % 50
    sampling = Sampling(temperature=0.0, top_logprobs=20, logit_bias=((favoured, 100.0),))
    biased = alone(engine, Generation(PROMPT, sampling, 1))[0]
    assert biased.token_id == favoured
    assert plain.logprob is not None
    assert biased.logprob is not None
    tops = {other.token_id: other.logprob for other in biased.logprob.top}
    assert tops[plain.token_id] == plain.logprob.logprob


def test_a_ban_keeps_a_token_out(engine: NativeEngine) -> None:
    banned = ids(alone(engine, Generation(PROMPT, GREEDY, 1)))[0]
    sampling = Sampling(temperature=1.0, seed=1, logit_bias=((banned, -100.0),))
    assert banned not in ids(alone(engine, Generation(PROMPT, sampling, 100, ignore_eos=True)))


def test_biases_and_penalties_leave_the_logits_as_they_were(engine: NativeEngine) -> None:
    sampling = Sampling(
        temperature=0.0, top_logprobs=3, repetition_penalty=1.5, presence_penalty=1.0,
        logit_bias=tuple((token, 5.0) for token in PROMPT[:10]), min_tokens=5,
    )  # fmt: skip
    chosen = alone(engine, Generation(PROMPT, sampling, 5))
    whole = [*PROMPT, *ids(chosen)]
    read = alone(engine, Generation(whole, GREEDY, 1, prompt_logprobs=3))[0].prompt
    assert [score.top for score in read[len(PROMPT) - 1 :]] == [token.logprob.top for token in chosen if token.logprob]


def test_no_stop_token_comes_before_the_least_number_of_tokens(engine: NativeEngine) -> None:
    wants_to_stop = ((EOS_ID, 100.0),)
    at_once = alone(engine, Generation(PROMPT, Sampling(temperature=0.0, logit_bias=wants_to_stop), 9))
    assert [token.finish for token in at_once] == [FinishReason.STOP]
    later = Sampling(temperature=0.0, logit_bias=wants_to_stop, min_tokens=4)
    tokens = alone(engine, Generation(PROMPT, later, 9))
    assert [token.finish for token in tokens] == [None] * 4 + [FinishReason.STOP]


def test_a_bias_outside_the_vocabulary_costs_its_own_request(engine: NativeEngine) -> None:
    with pytest.raises(EngineFailed):
        alone(engine, Generation(PROMPT, Sampling(logit_bias=((1 << 30, 1.0),)), 1))
    assert alone(engine, Generation(PROMPT, GREEDY, 1))
