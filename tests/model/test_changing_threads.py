"""The number of threads may change at every stage of every step: a request keeps its bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.engines import Engines, TinyModels
from reference.schedule import alone, together
from reference.tiny_model import LLAMA_64
from zerolayer.model.engine import Generation, SampledToken
from zerolayer.model.native_engine import NativeEngine
from zerolayer.wire.schema import Sampling

MOST = 3  # more than there may be cores: some threads wait for others that have none
JOBS = {
    slot: Generation(
        [(7 * at + 31 * slot) % 280 + 20 for at in range(20 + 9 * slot)],
        Sampling(temperature=(0.0, 0.8, 1.1)[slot], top_p=0.9, seed=slot, top_logprobs=3),
        4,
        ignore_eos=True,
    )
    for slot in range(3)
}


@pytest.fixture(scope="module")
def kept(tiny_models: TinyModels) -> Iterator[Engines]:
    opened = Engines(tiny_models)
    yield opened
    opened.shutdown()


@pytest.fixture(scope="module")
def many(kept: Engines) -> NativeEngine:
    return kept.open(LLAMA_64, slots=3, threads=MOST)


@pytest.fixture(scope="module")
def solo(kept: Engines) -> dict[int, list[SampledToken]]:
    one = kept.open(LLAMA_64, slots=1)
    return {slot: alone(one, generation) for slot, generation in JOBS.items()}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, MOST), min_size=1, max_size=12), st.integers(1, 32))
def test_changing_numbers_of_threads_change_no_bit(
    many: NativeEngine, solo: dict[int, list[SampledToken]], counts: list[int], chunk: int
) -> None:
    many._live.follow_threads(counts)
    assert together(many, JOBS, chunk) == solo


def test_a_number_of_threads_that_there_is_not_is_refused(many: NativeEngine) -> None:
    with pytest.raises(ValueError, match="number of threads"):
        many._live.follow_threads([MOST + 1])


def test_no_thread_rests_before_anything_is_known(engines: Engines) -> None:
    fresh = engines.open(LLAMA_64, threads=2)
    assert (fresh.resting, fresh.crowded, fresh.cores_had) == (0, False, 0.0)


def test_an_engine_that_is_shut_down_has_no_thread_at_rest(engines: Engines) -> None:
    ended = engines.open(LLAMA_64, threads=2)
    ended.shutdown()
    assert (ended.resting, ended.crowded, ended.cores_had) == (0, False, 0.0)
