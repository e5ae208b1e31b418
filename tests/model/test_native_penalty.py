"""Which tokens were seen: a set of bits is exact, a Bloom filter errs upwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.engines import Engines
from reference.schedule import alone
from reference.tiny_model import LLAMA_64
from zerolayer.model import _native
from zerolayer.model.engine import Generation
from zerolayer.wire.schema import Sampling

VOCABULARY = 49_152
PENALTY = 1.3


def logits(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=VOCABULARY).astype(np.float32)


def penalised(seen: list[int], *, bloom: bool) -> tuple[np.ndarray, int]:
    after = logits()
    _, _, count = _native.penalise(after, np.array(seen, dtype=np.int32), PENALTY, bloom, 2)
    return after, count


def distinct(count: int) -> list[int]:
    return np.random.default_rng(count).choice(VOCABULARY, count, replace=False).tolist()


@given(st.lists(st.integers(0, VOCABULARY - 1), max_size=50))
def test_the_set_penalises_each_seen_token_once_and_no_other(seen: list[int]) -> None:
    after, count = penalised(seen, bloom=False)
    before = logits()
    expected = before.copy()
    ids = sorted(set(seen))
    expected[ids] = np.where(before[ids] > 0, before[ids] / np.float32(PENALTY), before[ids] * np.float32(PENALTY))
    assert count == len(ids)
    assert np.array_equal(after.view(np.uint32), expected.view(np.uint32))


@given(st.lists(st.integers(0, VOCABULARY - 1), max_size=50))
def test_the_filter_never_misses_a_seen_token_and_penalises_it_to_the_same_bit(seen: list[int]) -> None:
    exact, filtered = penalised(seen, bloom=False)[0], penalised(seen, bloom=True)[0]
    assert np.array_equal(filtered[seen].view(np.uint32), exact[seen].view(np.uint32))


@pytest.mark.parametrize(("count", "most"), [(256, 0.0001), (1024, 0.0006), (2048, 0.005)])
def test_the_filter_takes_few_tokens_for_seen_that_are_not(count: int, most: float) -> None:
    """Twice what ideal hashes give at 1,024 and 2,048 tokens: (1 - exp(-4 n / 32768)) ** 4."""
    taken = penalised(distinct(count), bloom=True)[1]
    assert (taken - count) / (VOCABULARY - count) <= most


@pytest.mark.parametrize("bloom", [False, True], ids=["set", "filter"])
def test_a_token_outside_the_vocabulary_is_refused(bloom: bool) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        penalised([VOCABULARY], bloom=bloom)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.0, repetition_penalty=1.4, top_logprobs=3),
        Sampling(temperature=0.9, top_p=0.9, repetition_penalty=1.2, seed=5, top_logprobs=3),
        Sampling(temperature=0.9, presence_penalty=0.7, frequency_penalty=0.3, seed=5, top_logprobs=3),
    ],
    ids=["greedy", "repetition", "presence and frequency"],
)
def test_without_false_positives_generations_are_the_same_with_either(engines: Engines, sampling: Sampling) -> None:
    exact, filtered = engines.open(LLAMA_64), engines.open(LLAMA_64, bloom=True)
    for prompt in ([40, 41, 42, 41], [60, 7, 60]):  # the second one in a slot that another has left
        generation = Generation(prompt, sampling, 20, ignore_eos=True)
        assert alone(filtered, generation) == alone(exact, generation)
