"""Fine inputs: the largest inputs of a matrix have weights of seven more bits, which brings int8 close to the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reference.engines import Engines
from reference.llama import ReferenceModel, log_softmax
from reference.tiny_model import LLAMA_64, QWEN2, QWEN3, SHAPES, SMOL, TinyShape
from zerolayer.model.native_engine import NativeEngine

IDS = [(7 + 41 * i) % 307 for i in range(60)]


def divergence(expected: np.ndarray, got: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence of the next-token distributions, nats."""
    p, q = log_softmax(expected), log_softmax(got)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_logits_come_closer_to_the_reference(engines: Engines, shape: TinyShape) -> None:
    expected = engines.reference(shape).logits(IDS)
    coarse = divergence(expected, engines.open(shape, fine=False).logits(IDS))
    assert divergence(expected, engines.open(shape).logits(IDS)) < 0.9 * coarse


def test_a_trained_model_s_divergence_is_less_than_half(
    engines: Engines,
    bundled_engine: NativeEngine,
    bundled_reference: ReferenceModel,
    bundled_path: Path,
    prose_ids: list[int],
) -> None:
    ids = prose_ids[:64]
    expected = bundled_reference.logits(ids)
    coarse = engines.open(bundled_path, slots=1, slot_tokens=64, fine=False).logits(ids)
    assert divergence(expected, bundled_engine.logits(ids)) < divergence(expected, coarse) / 2


@pytest.mark.parametrize("shape", [LLAMA_64, QWEN2, QWEN3, SMOL], ids=lambda shape: shape.name)
def test_which_inputs_are_fine_depends_on_the_file_alone(engines: Engines, shape: TinyShape) -> None:
    """Not on slots, chunks and threads of the engine that chooses."""
    roomy = engines.open(shape, slots=9, slot_tokens=256, chunk_tokens=64).logits(IDS[:8])
    narrow = engines.open(shape, slots=1, slot_tokens=8, chunk_tokens=1, threads=2).logits(IDS[:8])
    assert roomy.tobytes() == narrow.tobytes()
