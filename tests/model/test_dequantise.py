"""Every storage type gives exactly the floats that the ``gguf`` package reads from the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from reference.k_quants import K_QUANTS, random_blocks
from zerolayer.model import _native
from zerolayer.model.model_config import READABLE
from zerolayer.model.tensor_type import TensorType

ROWS, COLUMNS = 7, 1024


def random_bytes(kind: TensorType, seed: int) -> np.ndarray:
    """Rows of blocks in which every bit is random, but for half-precision numbers, which are finite."""
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind.name]]
    random = np.random.default_rng(seed)
    raw = random.integers(0, 256, (ROWS, COLUMNS // block, size), dtype=np.uint8)
    if kind in (TensorType.F32, TensorType.BF16, TensorType.F16):
        values = random.standard_normal((ROWS, COLUMNS)).astype(np.float32)
        halves = {TensorType.F32: values, TensorType.F16: values.astype(np.float16)}
        stored = halves.get(kind, np.ascontiguousarray(values.view(np.uint16)[:, 1::2]))
        return stored.view(np.uint8).reshape(ROWS, -1)
    places = {TensorType.Q6_K: (208,), TensorType.Q4_0: (0,), TensorType.Q5_0: (0,), TensorType.Q8_0: (0,)}
    for at in places.get(kind, (0, 2)):
        halves_there = random.standard_normal(raw.shape[:2]).astype(np.float16)[..., None]
        raw[..., at : at + 2] = halves_there.view(np.uint8)
    return raw.reshape(ROWS, -1)


def dequantised(kind: TensorType, raw: np.ndarray) -> np.ndarray:
    out = np.empty((ROWS, COLUMNS), dtype=np.float32)
    _native.dequantise(_native.Tensor(kind.number, raw.reshape(-1), ROWS, COLUMNS), out)
    return out


@pytest.mark.parametrize("kind", sorted(READABLE))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_blocks_have_the_same_bits(kind: TensorType, seed: int) -> None:
    raw = random_bytes(kind, seed)
    want = dequantize(raw if kind != TensorType.F32 else raw.view(np.float32), GGMLQuantizationType[kind.name])
    if kind == TensorType.F16:
        want = raw.view(np.float16).astype(np.float32)
    assert dequantised(kind, raw).tobytes() == np.asarray(want, dtype=np.float32).reshape(ROWS, COLUMNS).tobytes()


def test_every_half_is_exact() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)[np.isfinite(np.arange(1 << 16, dtype=np.uint16).view(np.float16))]
    out = np.empty((1, halves.size), dtype=np.float32)
    _native.dequantise(_native.Tensor(TensorType.F16.number, halves.view(np.uint8), 1, halves.size), out)
    assert out[0].tobytes() == halves.view(np.float16).astype(np.float32).tobytes()


@pytest.mark.parametrize("kind", K_QUANTS)
def test_a_row_that_is_no_whole_number_of_blocks_is_refused(kind: str) -> None:
    raw = random_blocks(kind, 1, 256, 1.0, np.random.default_rng(0)).reshape(-1)
    with pytest.raises(ValueError, match="do not match"):
        _native.dequantise(_native.Tensor(TensorType[kind].number, raw, 1, 128), np.empty((1, 128), np.float32))


def test_an_output_of_another_shape_is_refused() -> None:
    raw = np.zeros(256, dtype=np.uint8)
    with pytest.raises(ValueError, match="wrong shape"):
        _native.dequantise(_native.Tensor(TensorType.F32.number, raw, 1, 64), np.empty((2, 32), np.float32))
