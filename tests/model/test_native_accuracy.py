"""The native engine against the float32 reference: logits, greedy tokens, perplexity.

Tolerances. Weights are int8 per output channel: on random matrices that alone moves logits by 2 to 4 % of their
standard deviation, less with fine inputs. Against a reference whose matrices went through the same int8 grid, only the
rounding of activations (14 bits), keys (13 bits) and values (8 bits) remains.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from reference.engines import Engines, with_type
from reference.k_quants import K_QUANTS
from reference.llama import ReferenceModel, int8_per_output, perplexity
from reference.schedule import alone
from reference.tiny_model import LLAMA, LLAMA_64, QWEN2, SHAPES, TENSOR_TYPES, WIDE, TinyShape
from zerolayer.model.engine import Generation
from zerolayer.model.native_engine import NativeEngine
from zerolayer.wire.schema import Sampling

GREEDY = Sampling(temperature=0)
CLEAR_MARGIN = 1.0  # logits between the first and the second token
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "<|im_start|>user\nWhat is 2 + 2?",
    "One, two, three, four, five,",
    "Water boils at 100 degrees",
)
TYPED = (
    *((shape, "F32", "") for shape in SHAPES),
    *((shape, kind, "") for kind in TENSOR_TYPES[1:] for shape in (LLAMA_64, QWEN2)),
    *((WIDE, kind, "") for kind in K_QUANTS),
    (LLAMA, "Q4_1", "Q8_0"),
    (WIDE, "Q4_K", "Q6_K"),
    (QWEN2, "Q4_0", "F16"),
)


def ids_of_every_kind(count: int) -> list[int]:
    """Token ids all over the tiny vocabulary."""
    return [(7 + 41 * i) % 307 for i in range(count)]


def spread(got: NDArray[np.float32], want: NDArray[np.float32]) -> float:
    """Root mean square of the difference in standard deviations of the logits."""
    return float(np.sqrt(np.mean((got - want) ** 2)) / want.std())


@pytest.mark.parametrize(("shape", "kind", "embedding"), TYPED, ids=lambda value: getattr(value, "name", value))
def test_logits_agree_with_the_reference(engines: Engines, shape: TinyShape, kind: str, embedding: str) -> None:
    typed = with_type(shape, kind, embedding)
    ids = ids_of_every_kind(70)
    want = engines.reference(typed).logits(ids)
    got = engines.open(typed).logits(ids)
    assert got.shape == want.shape
    assert got.dtype == np.float32
    assert spread(got, want) < 0.06
    assert np.abs(got - want).max() < 0.06 * np.ptp(want)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_only_rounding_of_activations_is_left_beside_int8_weights(engines: Engines, shape: TinyShape) -> None:
    ids = ids_of_every_kind(70)
    want = engines.reference(shape).with_matrices(int8_per_output).logits(ids)
    assert spread(engines.open(shape, fine=False).logits(ids), want) < 0.015


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_logits_are_close_at_the_last_position_of_a_slot(engines: Engines, shape: TinyShape) -> None:
    ids = ids_of_every_kind(100)
    engine = engines.open(shape, slot_tokens=100, chunk_tokens=7, fine=False)
    want = engines.reference(shape).with_matrices(int8_per_output).logits(ids)
    assert spread(engine.logits(ids)[-1:], want[-1:]) < 0.02


def test_logits_stay_close_over_a_long_context(engines: Engines) -> None:
    ids = ids_of_every_kind(900)
    want = engines.reference(LLAMA_64).with_matrices(int8_per_output).logits(ids)
    got = engines.open(LLAMA_64, slot_tokens=900, chunk_tokens=128, fine=False).logits(ids)
    assert spread(got[800:], want[800:]) < 0.015


def test_bundled_logits_are_close_to_the_reference(
    bundled_engine: NativeEngine, bundled_reference: ReferenceModel, prose_ids: list[int]
) -> None:
    ids = prose_ids[:64]
    want, got = bundled_reference.logits(ids), bundled_engine.logits(ids)
    assert spread(got, want) < 0.05
    assert np.abs(got - want).max() < 0.08 * np.ptp(want, axis=1).mean()
    assert (got.argmax(axis=1) == want.argmax(axis=1)).mean() > 0.9


@pytest.fixture(scope="module")
def continuations(
    bundled_engine: NativeEngine, bundled_reference: ReferenceModel, encode: Callable[[str], list[int]]
) -> dict[str, tuple[list[int], NDArray[np.float32]]]:
    """By prompt: the engine's greedy tokens, and the reference's logits at each of them, given the ones before."""
    out = {}
    for prompt in PROMPTS:
        ids = encode(prompt)
        tokens = [token.token_id for token in alone(bundled_engine, Generation(ids, GREEDY, 12, ignore_eos=True))]
        out[prompt] = tokens, bundled_reference.logits([*ids, *tokens[:-1]])[len(ids) - 1 :]
    return out


def clear_positions(rows: NDArray[np.float32]) -> list[int]:
    """Where the reference prefers one token by more than quantisation can turn round."""
    second, first = np.sort(rows, axis=1)[:, -2:].T
    return np.flatnonzero(first - second > CLEAR_MARGIN).tolist()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens_are_the_reference_s(
    prompt: str, continuations: dict[str, tuple[list[int], NDArray[np.float32]]]
) -> None:
    tokens, rows = continuations[prompt]
    clear = clear_positions(rows)
    assert [tokens[i] for i in clear] == rows.argmax(axis=1)[clear].tolist()


def test_the_prompts_have_enough_clear_positions(
    continuations: dict[str, tuple[list[int], NDArray[np.float32]]],
) -> None:
    """Keeps the test above from passing because it compares nothing."""
    assert sum(len(clear_positions(rows)) for _, rows in continuations.values()) >= 30


def test_greedy_tokens_are_the_argmax_of_the_engine_s_own_logits(
    bundled_engine: NativeEngine, prose_ids: list[int]
) -> None:
    prompt = prose_ids[:20]
    tokens = [
        token.token_id for token in alone(bundled_engine, Generation(prompt, GREEDY, 24, ignore_eos=True), slot=2)
    ]
    rows = bundled_engine.logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert tokens == rows.argmax(axis=1).tolist()


def test_perplexity_of_the_bundled_model_is_within_half_a_percent(
    bundled_engine: NativeEngine, bundled_reference: ReferenceModel, prose_ids: list[int]
) -> None:
    ids = prose_ids[:512]
    want, got = (perplexity(model.logits(ids), ids) for model in (bundled_reference, bundled_engine))
    assert abs(got / want - 1) < 0.005


@pytest.mark.judge
def test_perplexity_of_the_whole_text_is_within_half_a_percent(
    bundled_engine: NativeEngine, bundled_reference: ReferenceModel, prose_ids: list[int]
) -> None:
    windows = [prose_ids[start : start + 1000] for start in range(0, 2000, 1000)]
    want, got = (
        np.prod([perplexity(model.logits(ids), ids) for ids in windows]) ** (1 / len(windows))
        for model in (bundled_reference, bundled_engine)
    )
    assert abs(got / want - 1) < 0.005
