"""A model's tensors by name, whatever file they come from.

Every source gives them the names of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Base layers".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import msgspec

from zerolayer.model import _native
from zerolayer.model.tensor_type import TensorType


class TensorInfo(msgspec.Struct, frozen=True):
    """Where a tensor lies.

    ``shape`` is in row-major (C, numpy) order: a matrix that maps ``k`` inputs to ``n`` outputs has shape ``(n, k)``,
    each row of ``k`` numbers contiguous. (A GGUF file itself, and the ``gguf`` package, list the sizes the other way
    round.) ``offset`` and ``n_bytes`` count bytes from the start of the tensor's file.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    n_bytes: int


class Weights(Protocol):
    """An open source of tensors."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor of the model by name."""

    def data(self, name: str) -> memoryview:
        """The bytes of one tensor, read-only. ``ModelFileError`` if there is no such tensor."""

    def close(self) -> None:
        """Let go of the files. Idempotent."""


def vector(weights: Weights, name: str) -> memoryview[float]:
    """A tensor of type F32, F16 or BF16 as floats (format ``f``), flat."""
    info = weights.tensors[name]
    size = math.prod(info.shape)
    floats = memoryview(bytearray(4 * size))
    _native.dequantise(_native.Tensor(info.type.number, weights.data(name), 1, size), floats.cast("f", (1, size)))
    return floats.cast("f")
