"""Weights kept exactly as in the file: the same promises as int8 weights, and closer to the float32 reference."""

from __future__ import annotations

import numpy as np
import pytest

from reference.engines import Engines, with_type
from reference.llama import log_softmax
from reference.schedule import alone, together
from reference.tiny_model import LLAMA_64, QWEN2, SMOL, TinyShape
from zerolayer.errors import StartupError
from zerolayer.model import _native
from zerolayer.model.engine import Generation
from zerolayer.model.gguf import TensorInfo
from zerolayer.model.load import _exact
from zerolayer.model.tensor_type import TensorType
from zerolayer.wire.schema import Sampling

SHAPES = [
    with_type(SMOL, "Q4_1", "Q8_0"),
    with_type(LLAMA_64, "Q4_0", "Q8_0"),
    with_type(QWEN2, "Q8_0", "Q8_0"),
]
IDS = [20, 91, 143, 37, 255, 60, 118, 201, 44, 170, 99, 23] * 4


def divergence(expected: np.ndarray, got: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence of the next-token distributions, nats."""
    p, q = log_softmax(expected), log_softmax(got)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_exact_weights_are_closer_to_the_reference_than_coarse_int8_ones(engines: Engines, shape: TinyShape) -> None:
    expected = engines.reference(shape).logits(IDS)
    exact = divergence(expected, engines.open(shape, exact=True).logits(IDS))
    int8 = divergence(expected, engines.open(shape, fine=False).logits(IDS))
    assert exact < int8 / 4


@pytest.mark.parametrize("kernels", [*_native.kernel_sets(), "amx-emulated"])
def test_every_kernel_set_gives_the_same_bits(engines: Engines, kernels: str) -> None:
    shape = SHAPES[0]
    expected = engines.open(shape, exact=True, kernels="portable").logits(IDS)
    assert engines.open(shape, exact=True, kernels=kernels, threads=2).logits(IDS).tobytes() == expected.tobytes()


def test_neighbours_and_chunks_change_nothing(engines: Engines) -> None:
    engine = engines.open(SHAPES[0], exact=True)
    requests = {
        slot: Generation(IDS[slot : slot + 30], Sampling(temperature=0.9, seed=slot), 8, ignore_eos=True)
        for slot in range(4)
    }
    expected = {slot: alone(engine, request, chunk=32) for slot, request in requests.items()}
    assert together(engine, requests, chunk=7) == expected


def test_a_type_without_groups_of_32_is_refused_plainly(engines: Engines) -> None:
    with pytest.raises(StartupError, match="Q4_0, Q4_1 or Q8_0"):
        engines.open(with_type(SMOL, "F16"), exact=True)


class Types:
    """Weights that have nothing but types."""

    def __init__(self, **types: str) -> None:
        self.tensors = {
            name.replace("__", "."): TensorInfo(name, (2, 32), TensorType(kind), 0, 0) for name, kind in types.items()
        }

    def data(self, name: str) -> memoryview:
        raise AssertionError(f"{name} is not to be read")

    def close(self) -> None:
        raise AssertionError("nothing was opened")


def types(attn_k: str = "Q4_1", head: str = "Q8_0") -> Types:
    return Types(
        blk__0__attn_q__weight="Q4_1",
        blk__0__attn_k__weight=attn_k,
        blk__0__attn_v__weight="Q4_1",
        output__weight=head,
    )


def test_a_file_of_types_that_can_be_kept_is_kept() -> None:
    assert _exact("exact", types())


def test_a_file_whose_matrices_mix_types_is_not_kept_by_itself() -> None:
    assert not _exact("auto", types(attn_k="Q4_0"))


@pytest.mark.parametrize("weights", [types(attn_k="Q4_0"), types(head="F16")], ids=["mixed", "F16"])
def test_keeping_what_cannot_be_kept_is_refused_with_the_reason(weights: Types) -> None:
    with pytest.raises(StartupError, match="Use --weights int8"):
        _exact("exact", weights)
