"""Sampling inside the step: exact distributions, penalties, seeds and logprobs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from reference.engines import Engines
from reference.llama import log_softmax
from reference.sampling import chi_square_excess, distribution, penalised
from reference.schedule import Run, alone, together
from reference.tiny_model import CONSTANT, LLAMA_64, SMOL
from zerolayer.model import _native
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.native_engine import NativeEngine
from zerolayer.wire.schema import Sampling

PROMPT = [40, 41, 42, 41]
SEEDS = 20_000
POSITIONS = 4000
TOO_FAR = 4.0  # standard deviations; a true sampler is beyond it once in 30,000 runs, and the seeds are fixed

FILTERS = (
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(temperature=2.0),
    Sampling(top_k=1),
    Sampling(top_k=7),
    Sampling(top_k=10_000),
    Sampling(top_p=0.9),
    Sampling(top_p=0.3),
    Sampling(top_p=0.0001),
    Sampling(top_p=0.9999, temperature=1.5),
    Sampling(min_p=0.1),
    Sampling(min_p=0.02, temperature=1.5),
    Sampling(min_p=1.0),
    Sampling(temperature=0.7, top_k=40, top_p=0.95, min_p=0.01),
    Sampling(temperature=1.3, top_k=12, top_p=0.6),
    Sampling(repetition_penalty=1.5),
    Sampling(temperature=0.8, repetition_penalty=1.2, top_p=0.9),
)


def label(sampling: Sampling) -> str:
    """Only what differs from the defaults."""
    changed = {
        name: value for name, value in msgspec.structs.asdict(sampling).items() if value != getattr(Sampling(), name)
    }
    return ",".join(f"{name}={value}" for name, value in changed.items()) or "defaults"


def ids(tokens: list[SampledToken]) -> list[int]:
    return [token.token_id for token in tokens]


def with_seed(sampling: Sampling, seed: int) -> Sampling:
    return msgspec.structs.replace(sampling, seed=seed)


def first_tokens(engine: NativeEngine, sampling: Sampling, seeds: range) -> list[int]:
    """The first token after ``PROMPT`` under each seed."""
    run, chosen = Run(engine), []
    for seed in seeds:
        run.admit(0, Generation(PROMPT, with_seed(sampling, seed), 1, ignore_eos=True))
        chosen.append(run.step(StepPlan((), 0, len(PROMPT)))[0].token_id)
    return chosen


@pytest.fixture
def engine(engines: Engines) -> NativeEngine:
    return engines.open(SMOL)


@pytest.mark.parametrize("sampling", FILTERS, ids=label)
def test_first_tokens_follow_the_exact_distribution(engine: NativeEngine, sampling: Sampling) -> None:
    exact = distribution(engine.logits(PROMPT)[-1], sampling, PROMPT)
    counts = np.bincount(first_tokens(engine, sampling, range(SEEDS)), minlength=len(exact))
    assert chi_square_excess(counts, exact) < TOO_FAR


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_k=50, top_p=0.9)], ids=label)
def test_the_positions_of_one_generation_are_independent_draws(engines: Engines, sampling: Sampling) -> None:
    """On a model whose logits never change, one long generation is a sample, and so are its pairs."""
    engine = engines.open(CONSTANT, slot_tokens=POSITIONS + len(PROMPT))
    exact = distribution(engine.logits(PROMPT)[-1], sampling)
    tokens = np.array(ids(alone(engine, Generation(PROMPT, with_seed(sampling, 5), POSITIONS, ignore_eos=True))))
    top = np.argsort(-exact)[:8]
    group = np.full(len(exact), 8)
    group[top] = np.arange(8)
    grouped = np.bincount(group, weights=exact, minlength=9)
    pairs = np.bincount(group[tokens[:-1]] * 9 + group[tokens[1:]], minlength=81)
    assert chi_square_excess(np.bincount(tokens, minlength=len(exact)), exact) < TOO_FAR
    assert chi_square_excess(pairs, np.outer(grouped, grouped).ravel()) < TOO_FAR


def test_the_chi_square_test_notices_a_wrong_temperature(engine: NativeEngine) -> None:
    """Keeps the tests above honest."""
    wrong = distribution(engine.logits(PROMPT)[-1], Sampling(temperature=0.93))
    counts = np.bincount(first_tokens(engine, Sampling(), range(SEEDS)), minlength=len(wrong))
    assert chi_square_excess(counts, wrong) > TOO_FAR


def test_greedy_ignores_the_seed(engine: NativeEngine) -> None:
    runs = [
        ids(alone(engine, Generation(PROMPT, Sampling(temperature=0, seed=seed), 20, ignore_eos=True)))
        for seed in (None, 1, 2)
    ]
    assert runs[0] == runs[1] == runs[2]


def test_the_same_seed_gives_the_same_tokens_in_any_company(engines: Engines) -> None:
    engine = engines.open(LLAMA_64)
    generation = Generation(PROMPT, Sampling(seed=77), 20, ignore_eos=True)
    other = Generation(PROMPT, Sampling(seed=78), 20, ignore_eos=True)
    crowd = together(engine, {0: other, 1: generation, 2: generation, 3: other})
    assert crowd[1] == crowd[2] == alone(engine, generation)
    assert crowd[0] == crowd[3] != crowd[1]


def test_different_seeds_give_different_tokens(engine: NativeEngine) -> None:
    runs = {
        tuple(ids(alone(engine, Generation(PROMPT, Sampling(seed=seed), 20, ignore_eos=True)))) for seed in range(10)
    }
    assert len(runs) == 10


def test_without_a_seed_every_generation_gets_a_fresh_one(engine: NativeEngine) -> None:
    runs = {tuple(ids(alone(engine, Generation(PROMPT, Sampling(), 30, ignore_eos=True)))) for _ in range(5)}
    assert len(runs) == 5


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**63 - 1, -(2**63)])
def test_every_64_bit_seed_is_taken(engine: NativeEngine, seed: int) -> None:
    generation = Generation(PROMPT, Sampling(seed=seed), 8, ignore_eos=True)
    assert ids(alone(engine, generation)) == ids(alone(engine, generation))


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-30, 1e-38, 1e-40, 1e-45, 5e-324])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(seed=1), Sampling(seed=1, top_p=0.9, top_k=5), Sampling(seed=1, min_p=0.1), Sampling(seed=1, min_p=1.0)],
    ids=label,
)
@pytest.mark.parametrize("kernels", _native.kernel_sets())
def test_a_temperature_next_to_zero_is_greedy(
    engines: Engines, temperature: float, sampling: Sampling, kernels: str
) -> None:
    engine = engines.open(SMOL, kernels=kernels)
    best = int(engine.logits(PROMPT)[-1].argmax())
    cold = msgspec.structs.replace(sampling, temperature=temperature)
    assert ids(alone(engine, Generation(PROMPT, cold, 1, ignore_eos=True))) == [best]


PENALTIES = (
    Sampling(temperature=0, repetition_penalty=1.3),
    Sampling(temperature=0, repetition_penalty=0.7),
    Sampling(temperature=0, presence_penalty=1.5),
    Sampling(temperature=0, presence_penalty=-2.0),
    Sampling(temperature=0, frequency_penalty=0.4),
    Sampling(temperature=0, frequency_penalty=-0.5),
    Sampling(temperature=0, repetition_penalty=1.1, presence_penalty=0.6, frequency_penalty=0.3),
)


@pytest.mark.parametrize("shape", [CONSTANT, LLAMA_64], ids=lambda shape: shape.name)
@pytest.mark.parametrize("sampling", PENALTIES, ids=label)
def test_greedy_tokens_are_the_argmax_of_the_penalised_logits(
    engines: Engines, shape: object, sampling: Sampling
) -> None:
    engine = engines.open(shape)  # type: ignore[arg-type]
    chosen = ids(alone(engine, Generation(PROMPT, sampling, 40, ignore_eos=True)))
    rows = engine.logits([*PROMPT, *chosen[:-1]])[len(PROMPT) - 1 :]
    for i, (row, token) in enumerate(zip(rows, chosen, strict=True)):
        wanted = penalised(row, sampling, PROMPT, chosen[:i])
        assert wanted[token] >= wanted.max() - 1e-5


def test_penalties_of_a_slot_do_not_survive_it(engines: Engines) -> None:
    engine = engines.open(CONSTANT)
    generation = Generation(PROMPT, Sampling(temperature=0, frequency_penalty=0.4), 30, ignore_eos=True)
    assert ids(alone(engine, generation)) == ids(alone(engine, generation))


def test_sampled_tokens_follow_the_penalised_distribution(engines: Engines) -> None:
    """The fourth token of a generation whose first three are forced by a greedy twin of the model's constant logits."""
    engine = engines.open(CONSTANT)
    sampling = Sampling(temperature=1.0, repetition_penalty=1.4, presence_penalty=0.8, frequency_penalty=0.5)
    raw = engine.logits(PROMPT)[-1]
    exact = np.zeros_like(raw, dtype=np.float64)
    counts = np.zeros(len(raw), dtype=np.int64)
    for seed in range(SEEDS // 10):
        tokens = ids(alone(engine, Generation(PROMPT, with_seed(sampling, seed), 4, ignore_eos=True)))
        exact += distribution(raw, sampling, PROMPT, tokens[:3])
        counts[tokens[3]] += 1
    assert chi_square_excess(counts, exact / exact.sum()) < TOO_FAR


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(temperature=0.7, top_k=5, repetition_penalty=1.3, seed=3)], ids=label
)
@pytest.mark.parametrize("top", [0, 1, 5, 20])
def test_logprobs_are_the_log_softmax_of_the_raw_logits(engines: Engines, sampling: Sampling, top: int) -> None:
    engine = engines.open(LLAMA_64)
    tokens = alone(engine, Generation(PROMPT, msgspec.structs.replace(sampling, top_logprobs=top), 12, ignore_eos=True))
    rows = log_softmax(engine.logits([*PROMPT, *ids(tokens)[:-1]])[len(PROMPT) - 1 :])
    for row, token in zip(rows, tokens, strict=True):
        assert token.logprob is not None
        assert token.logprob.token_id == token.token_id
        assert token.logprob.logprob == pytest.approx(row[token.token_id], abs=1e-4)
        best = np.argsort(-row, kind="stable")[:top]
        assert [alternative.token_id for alternative in token.logprob.top] == best.tolist()
        assert [alternative.logprob for alternative in token.logprob.top] == pytest.approx(row[best].tolist(), abs=1e-4)


def test_logprobs_are_absent_unless_asked_for(engine: NativeEngine) -> None:
    assert all(
        token.logprob is None for token in alone(engine, Generation(PROMPT, Sampling(seed=1), 5, ignore_eos=True))
    )


def test_asking_for_logprobs_does_not_change_the_tokens(engine: NativeEngine) -> None:
    with_logprobs, without = (
        ids(alone(engine, Generation(PROMPT, Sampling(seed=9, top_logprobs=top), 20, ignore_eos=True)))
        for top in (20, None)
    )
    assert with_logprobs == without
