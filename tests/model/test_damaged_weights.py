"""Weights that are no numbers: one plain error at the start, whatever their type and place, never a crash.

What only a text brings to light ends the answer to it, honestly.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference.engines import Engines
from reference.tiny_folder import write_tiny_folder
from reference.tiny_model import LLAMA_31, QWEN2, QWEN3, SMOL, WIDE, TinyShape, write_tiny_model
from zerolayer.errors import ModelFileError, StartupError
from zerolayer.model.engine import Broken, Generation, StepPlan
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.gguf import GgufFile
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.native_engine import EXACT, NativeEngine
from zerolayer.model.program import Programs
from zerolayer.model.source import open_source
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import FinishReason, Sampling

INFINITE, NAN, FLOAT_NAN = b"\x00\x7c", b"\x00\x7e", struct.pack("<f", float("nan"))
# By type: bytes of the last block that make its numbers no numbers, and how far they are from its end.
HARM = {
    "F32": (FLOAT_NAN, 4),
    "F16": (INFINITE, 2),
    "BF16": (b"\xc0\x7f", 2),
    "Q8_0": (INFINITE, 34),
    "Q4_0": (NAN, 18),
    "Q4_1": (INFINITE, 18),
    "Q5_0": (NAN, 22),
    "Q5_1": (INFINITE, 22),
    "Q4_K": (INFINITE, 144),
    "Q5_K": (NAN, 174),
    "Q6_K": (INFINITE, 2),
}
MATRICES = ("blk.0.attn_v.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight", "output.weight", "token_embd.weight")
VECTORS = (
    (WIDE, "blk.1.attn_norm.weight"),
    (WIDE, "blk.0.ffn_norm.weight"),
    (WIDE, "output_norm.weight"),
    (QWEN2, "blk.0.attn_q.bias"),
    (QWEN2, "blk.1.attn_k.bias"),
    (QWEN2, "blk.0.attn_v.bias"),
    (QWEN3, "blk.0.attn_q_norm.weight"),
    (QWEN3, "blk.1.attn_k_norm.weight"),
    (LLAMA_31, "rope_freqs.weight"),
)


def damaged(path: Path, shape: TinyShape, tensor: str, harm: bytes, before_end: int) -> Path:
    """The model with ``harm`` in the place of some bytes of ``tensor``."""
    write_tiny_model(path, shape)
    with GgufFile.open(path) as file:
        info = file.tensors[tensor]
    content = bytearray(path.read_bytes())
    at = info.offset + info.n_bytes - before_end
    content[at : at + len(harm)] = harm
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("tensor", MATRICES)
@pytest.mark.parametrize("kind", HARM)
def test_a_matrix_that_is_no_numbers_is_refused(tmp_path: Path, engines: Engines, kind: str, tensor: str) -> None:
    path = damaged(tmp_path / "m.gguf", dataclasses.replace(WIDE, tensor_type=kind), tensor, *HARM[kind])
    for exact in {False, kind in EXACT}:
        with pytest.raises(ModelFileError, match=r"some of its weights are no finite numbers, or far too .*Download"):
            engines.open(path, threads=2, exact=exact)


@pytest.mark.parametrize(("shape", "tensor"), VECTORS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_vector_that_is_no_numbers_is_refused(
    tmp_path: Path, engines: Engines, shape: TinyShape, tensor: str
) -> None:
    with pytest.raises(ModelFileError, match="no finite numbers"):
        engines.open(damaged(tmp_path / "m.gguf", shape, tensor, FLOAT_NAN, 4))


def test_rotary_frequencies_are_not_divided_by_zero(tmp_path: Path, engines: Engines) -> None:
    with pytest.raises(ModelFileError, match="no finite numbers"):
        engines.open(damaged(tmp_path / "m.gguf", LLAMA_31, "rope_freqs.weight", bytes(4), 4))


def test_an_embedding_that_is_the_head_too_is_looked_at(tmp_path: Path, engines: Engines) -> None:
    with pytest.raises(ModelFileError, match="no finite numbers"):
        engines.open(damaged(tmp_path / "m.gguf", QWEN3, "token_embd.weight", FLOAT_NAN, 4))


def test_a_scale_that_cannot_be_kept_exactly_is_refused_with_what_to_do(tmp_path: Path, engines: Engines) -> None:
    shape = dataclasses.replace(WIDE, tensor_type="Q8_0")
    path = damaged(tmp_path / "m.gguf", shape, "blk.0.attn_k.weight", b"\xff\x7b", 34)  # 65,504: finite
    with pytest.raises(StartupError, match="too large to be kept exactly; use --weights int8"):
        engines.open(path, threads=2, exact=True)
    engines.open(path, threads=2)


@pytest.mark.parametrize("huge", [2e19, -2e19, 1e30, 3e38])
@pytest.mark.parametrize("tensor", [*MATRICES, "output_norm.weight"])
def test_a_weight_whose_square_is_no_number_is_refused(
    tmp_path: Path, engines: Engines, tensor: str, huge: float
) -> None:
    shape = dataclasses.replace(WIDE, tensor_type="F32")
    with pytest.raises(ModelFileError, match="far too large"):
        engines.open(damaged(tmp_path / "m.gguf", shape, tensor, struct.pack("<f", huge), 4))


Weights = dict[str, NDArray[np.float32]]  # by the name of the tensor


def changed(path: Path, change: Callable[[Weights], None]) -> Path:
    """A model whose weights ``change`` has changed in place."""
    write_tiny_model(path, dataclasses.replace(WIDE, tensor_type="F32"))
    content = bytearray(path.read_bytes())
    with GgufFile.open(path) as file:
        change(
            {
                name: np.frombuffer(content, np.float32, info.n_bytes // 4, info.offset).reshape(info.shape)
                for name, info in file.tensors.items()
            }
        )
    path.write_bytes(content)
    return path


def loud_head(weights: Weights) -> None:
    weights["output_norm.weight"][:] = 1e19
    weights["output.weight"][:] *= 1e19


def loud_values(weights: Weights) -> None:
    weights["blk.0.attn_norm.weight"][:] = 1e19
    weights["blk.0.attn_v.weight"][:] *= 1e19
    weights["blk.0.attn_output.weight"][:] *= 1e19


def loud_last_layer(weights: Weights) -> None:
    weights["blk.1.ffn_norm.weight"][:] = 1e19
    weights["blk.1.ffn_gate.weight"][:] = 1.0


RARE = 306  # a token that no heartbeat reads


def loud_for_one_token(weights: Weights) -> None:
    """One input is 0 for every other token, and stays so."""
    weights["token_embd.weight"][:, 0] = 0.0
    weights["token_embd.weight"][RARE, 0] = 1.0
    for layer in ("blk.0.", "blk.1."):
        weights[layer + "attn_output.weight"][0] = weights[layer + "ffn_down.weight"][0] = 0.0
    weights["blk.0.ffn_norm.weight"][0] = 1e19
    weights["blk.0.ffn_gate.weight"][:, 0] = weights["blk.0.ffn_up.weight"][:, 0] = 1e3


@pytest.mark.parametrize("change", [loud_head, loud_values, loud_last_layer])
def test_a_model_that_computes_no_numbers_does_not_start(
    tmp_path: Path, engines: Engines, change: Callable[[Weights], None]
) -> None:
    """Each weight is one that passes; together they are too much."""
    engine = engines.open(changed(tmp_path / "m.gguf", change), slots=1)
    beats = Heartbeat(Programs([]), range(1, 17), 10**12)
    steps = StepClock(engine, [].append, time.monotonic_ns, heartbeat=beats)
    with pytest.raises(ModelFileError, match=r"no finite numbers, so its weights are damaged\. Download"):
        steps.start()
    assert not steps.alive


SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.0, top_logprobs=5),
    Sampling(temperature=1.0, seed=1),
    Sampling(temperature=0.7, seed=1, top_p=0.9, top_logprobs=0),
    Sampling(temperature=0.0, repetition_penalty=1.3, frequency_penalty=0.5, logit_bias=((5, 10.0),)),
)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_an_answer_ends_where_logits_are_no_numbers_and_its_neighbours_go_on(
    tmp_path: Path, engines: Engines, sampling: Sampling, threads: int
) -> None:
    engine = engines.open(changed(tmp_path / "m.gguf", loud_for_one_token), threads=threads)
    sound, rare = Generation([1, 2, 3], sampling, 4, ignore_eos=True), Generation([1, RARE], sampling, 4)
    engine.open(0, sound)
    alone = engine.step(StepPlan((), 0, 3)) + engine.step(StepPlan((0,))) + engine.step(StepPlan((0,)))
    engine.close(0)
    engine.open(0, sound)
    engine.open(1, rare)
    tokens = engine.step(StepPlan((), 0, 3)) + engine.step(StepPlan((0,), 1, 2))
    broken = tokens.pop()
    assert (broken.slot, broken.finish, broken.logprob) == (1, FinishReason.STOP, None)
    assert broken.broken is Broken.NUMBERS
    engine.close(1)
    assert tokens + engine.step(StepPlan((0,))) == alone
    assert [token.broken for token in alone] == [None] * 3


def test_a_prompt_whose_scores_are_no_numbers_ends_where_its_answer_would_begin(
    tmp_path: Path, engines: Engines
) -> None:
    engine = engines.open(changed(tmp_path / "m.gguf", loud_for_one_token), chunk_tokens=4)
    engine.open(0, Generation([1, RARE, 3, 4, 5, 6], Sampling(temperature=0.0), 4, prompt_logprobs=2))
    assert engine.step(StepPlan((), 0, 4)) == []
    (token,) = engine.step(StepPlan((), 0, 2))
    assert (token.finish, token.broken) == (FinishReason.STOP, Broken.NUMBERS)


def test_penalties_that_are_hardly_more_than_nothing_leave_numbers(engines: Engines) -> None:
    engine = engines.open(WIDE)
    sampling = Sampling(temperature=0.0, repetition_penalty=1e-40, top_logprobs=2)
    engine.open(0, Generation([1, 2, 3], sampling, 4, ignore_eos=True))
    tokens = engine.step(StepPlan((), 0, 3)) + engine.step(StepPlan((0,)))
    assert [token.broken for token in tokens] == [None, None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A sound file of each type that is kept exactly."""
    folder = tmp_path_factory.mktemp("sound")
    shapes = {kind: dataclasses.replace(SMOL, tensor_type=kind) for kind in sorted(EXACT)}
    return {kind: write_tiny_model(folder / kind, shape).read_bytes() for kind, shape in shapes.items()}


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(kind=st.sampled_from(sorted(EXACT)), exact=st.booleans(), data=st.data())
def test_whatever_bytes_change_a_model_is_served_or_refused(
    tmp_path: Path, engines: Engines, sound: dict[str, bytes], kind: str, exact: bool, data: st.DataObject
) -> None:
    content = bytearray(sound[kind])
    places = st.integers(0, len(content) - 2)
    harm = st.sampled_from([INFINITE, NAN, b"\xff\xff", b"\xff\x7b", b"\x00\x00"])
    for at, raw in data.draw(st.lists(st.tuples(places, harm), min_size=1, max_size=6)):
        content[at : at + 2] = raw
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    try:
        engine = engines.open(path, slots=1, slot_tokens=32, threads=2, exact=exact)
    except (ModelFileError, StartupError) as error:
        assert error.message
        return
    engine.open(0, Generation([1, 2, 3], Sampling(temperature=0.0, top_logprobs=5), 2, ignore_eos=True))
    (token,) = engine.step(StepPlan((), 0, 3))
    engine.shutdown()
    if token.broken is None:
        assert token.logprob is not None
        assert all(math.isfinite(each.logprob) for each in (token.logprob, *token.logprob.top))
    else:
        assert token.broken is Broken.NUMBERS


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_folder_s_weights_are_looked_at_too(tmp_path: Path, kind: str) -> None:
    write_tiny_folder(tmp_path, WIDE, dtype=kind)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    harm, before_end = HARM[kind]
    content[len(content) - before_end :] = harm
    path.write_bytes(content)
    source = open_source(tmp_path)
    options = EngineOptions(slots=1, slot_tokens=64, chunk_tokens=16, threads=2)
    with pytest.raises(ModelFileError, match="no finite numbers"):
        NativeEngine.load(source.weights, source.config, options)
    source.weights.close()
