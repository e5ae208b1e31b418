"""Random matrices in ggml's K-quants, which the ``gguf`` package reads but does not write.

Block layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h, ``block_q4_K``
and its neighbours.
"""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

K_QUANTS = ("Q4_K", "Q5_K", "Q6_K")
BLOCK = 256
_BYTES = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}


def random_blocks(kind: str, rows: int, columns: int, gain: float, random: np.random.Generator) -> NDArray[np.uint8]:
    """A matrix (rows, columns) as bytes (rows, bytes of a row): every bit random, values around 0 with spread ``gain``.

    Q4_K and Q5_K: each sub-block's minimum is its scale, and the block's minimum lies half the range below zero.
    """
    blocks = random.integers(0, 256, (rows, columns // BLOCK, _BYTES[kind]), dtype=np.uint8)
    if kind == "Q6_K":
        blocks[..., 208:] = _half(1.0, blocks)
    else:
        blocks[..., 8:12] = blocks[..., 4:8]  # minima 0-3 = scales 0-3, their upper bits those of 4-7
        blocks[..., 12:16] = (blocks[..., 12:16] & 15) * 17  # lower bits of 4-7 alike
        blocks[..., 0:2] = _half(1.0, blocks)
        blocks[..., 2:4] = _half(7.5 if kind == "Q4_K" else 15.5, blocks)
    spread = float(dequantize(blocks.reshape(rows, -1), GGMLQuantizationType[kind]).std())
    for at in (208,) if kind == "Q6_K" else (0, 2):
        scale = blocks[..., at : at + 2].copy().view(np.float16)
        blocks[..., at : at + 2] = (scale * np.float16(gain / spread)).view(np.uint8)
    return blocks.reshape(rows, -1)


def _half(value: float, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.full((*blocks.shape[:2], 1), value, dtype=np.float16).view(np.uint8)
