"""Which models a file may describe, and that every number in the description is checked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import ModelFileError
from zerolayer.model.gguf import GgufFile
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.tensor_type import TensorType
from zerolayer.model.weights import TensorInfo

Shapes = dict[str, tuple[int, ...]]

METADATA: dict[str, object] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 2,
    "llama.context_length": 256,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "tokenizer.chat_template": "{{ messages }}",
}


def tensors(changes: Mapping[str, tuple[int, ...] | TensorType | None] | None = None) -> dict[str, TensorInfo]:
    """A tiny llama's tensors, with some given another shape or type, or left out."""
    shapes: Shapes = {"token_embd.weight": (4, 64), "output_norm.weight": (64,)}
    for layer in range(2):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (64,),
            f"blk.{layer}.attn_q.weight": (64, 64),
            f"blk.{layer}.attn_k.weight": (32, 64),
            f"blk.{layer}.attn_v.weight": (32, 64),
            f"blk.{layer}.attn_output.weight": (64, 64),
            f"blk.{layer}.ffn_norm.weight": (64,),
            f"blk.{layer}.ffn_gate.weight": (96, 64),
            f"blk.{layer}.ffn_up.weight": (96, 64),
            f"blk.{layer}.ffn_down.weight": (64, 96),
        }
    types: dict[str, TensorType] = {}
    for name, change in (changes or {}).items():
        if change is None:
            del shapes[name]
        elif isinstance(change, TensorType):
            types[name] = change
        else:
            shapes[name] = change
    return {
        name: TensorInfo(name, shape, types.get(name, TensorType.F32), 0, 4 * prod(shape))
        for name, shape in shapes.items()
    }


def config(
    changes: Mapping[str, object] | None = None, its_tensors: dict[str, TensorInfo] | None = None
) -> ModelConfig:
    metadata = {key: value for key, value in {**METADATA, **(changes or {})}.items() if value is not None}
    return ModelConfig.from_gguf(metadata, tensors() if its_tensors is None else its_tensors)


def test_the_bundled_model_is_described(bundled_path: Path) -> None:
    model = GgufFile.open(bundled_path)
    found = ModelConfig.from_gguf(model.metadata, model.tensors)
    assert (found.layers, found.hidden, found.heads, found.kv_heads, found.head_dim) == (30, 576, 9, 3, 64)
    assert (found.intermediate, found.vocabulary, found.context) == (1536, 49152, 8192)
    assert (found.rope_layout, found.rope_base, found.tied_embedding, found.qkv_bias) == (
        "interleaved",
        1e5,
        True,
        False,
    )


def test_a_llama_has_interleaved_rotary_pairs_and_a_tied_embedding_without_output_weight() -> None:
    found = config()
    assert (found.rope_layout, found.tied_embedding, found.qkv_bias, found.rope_factors) == (
        "interleaved",
        True,
        False,
        False,
    )


def test_output_weight_means_that_the_embedding_is_not_tied() -> None:
    assert not config(its_tensors=tensors({"output.weight": (4, 64)})).tied_embedding


def test_a_qwen2_has_halved_rotary_pairs_and_biases() -> None:
    metadata = {key.replace("llama.", "qwen2."): value for key, value in METADATA.items()} | {
        "general.architecture": "qwen2"
    }
    biases = {f"blk.{i}.attn_{x}.bias": (64 if x == "q" else 32,) for i in range(2) for x in "qkv"}
    found = ModelConfig.from_gguf(metadata, tensors(biases))
    assert (found.architecture, found.rope_layout, found.qkv_bias) == ("qwen2", "halves", True)


def test_rope_frequencies_in_the_file_are_announced() -> None:
    assert config(its_tensors=tensors({"rope_freqs.weight": (8,)})).rope_factors


def test_a_sliding_window_limits_the_context() -> None:
    assert config({"llama.attention.sliding_window": 128}).context == 128


def test_linear_scaling_by_one_is_no_scaling() -> None:
    assert config({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0}).context == 256


def test_an_empty_chat_template_is_none() -> None:
    assert config({"tokenizer.chat_template": ""}).chat_template is None


def test_the_models_name_is_made_printable() -> None:
    assert config({"general.name": "\x1b[2JTiny\n"}).name == "[2JTiny"


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no architecture": ({"general.architecture": None}, "architecture"),
    "another architecture": ({"general.architecture": "mamba"}, "'mamba'"),
    "a mixture of experts": ({"llama.expert_count": 8}, "mixture of experts"),
    "yarn": ({"llama.rope.scaling.type": "yarn"}, "'yarn'"),
    "linear scaling": ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, "'linear'"),
    "old linear scaling": ({"llama.rope.scale_linear": 2.0}, "scale_linear"),
    "no layers": ({"llama.block_count": 0}, "block_count is 0"),
    "a layer count that is text": ({"llama.block_count": "2"}, "block_count is missing or no single integer"),
    "a layer count that is true": ({"llama.block_count": True}, "block_count is missing"),
    "too many layers": ({"llama.block_count": 1 << 40}, "block_count is"),
    "a negative size": ({"llama.embedding_length": -64}, "embedding_length is -64"),
    "heads that do not divide the hidden size": ({"llama.attention.head_count": 5}, "do not divide"),
    "kv heads that do not divide the heads": ({"llama.attention.head_count_kv": 3}, "do not divide"),
    "more kv heads than heads": ({"llama.attention.head_count_kv": 8}, "must be 1 to 4"),
    "different kv heads per layer": ({"llama.attention.head_count_kv": [1, 2]}, "no single integer"),
    "an odd head size": ({"llama.attention.key_length": 7}, "even"),
    "values of another size than keys": ({"llama.attention.value_length": 32}, "value_length is 32"),
    "rotary positions on a part of the head": ({"llama.rope.dimension_count": 8}, "dimension_count is 8"),
    "an epsilon of 0": ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "rms_epsilon"),
    "an epsilon that is no number": ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "no finite number"),
    "an infinite rope base": ({"llama.rope.freq_base": float("inf")}, "no finite number"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, "lists 0 tokens"),
    "more tokens than rows": ({"tokenizer.ggml.tokens": ["x"] * 5}, "lists 5 tokens"),
    "a chat template that is a number": ({"tokenizer.chat_template": 3}, "no text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unfit_description_is_one_clear_error(case: str) -> None:
    changes, expected = REFUSED[case]
    with pytest.raises(ModelFileError) as caught:
        config(changes)
    assert expected in caught.value.message


UNFIT: dict[str, tuple[dict[str, tuple[int, ...] | TensorType | None], str]] = {
    "no embedding": ({"token_embd.weight": None}, "no matrix token_embd.weight"),
    "a missing layer": ({"blk.1.ffn_up.weight": None}, "no tensor blk.1.ffn_up.weight"),
    "a matrix of another shape": ({"blk.1.ffn_down.weight": (96, 64)}, "shape (96, 64)"),
    "a storage type of later": ({"blk.0.attn_q.weight": TensorType.IQ4_XS}, "IQ4_XS, which is not supported yet"),
    "a quantised vector": ({"output_norm.weight": TensorType.Q8_0}, "vector stored as Q8_0"),
    "a bias in one layer only": ({"blk.0.attn_q.bias": (64,)}, "no tensor blk.0.attn_k.bias"),
    "a norm of a variant": ({"blk.0.attn_q_norm.weight": (16,)}, "variant"),
    "rope frequencies of another size": ({"rope_freqs.weight": (16,)}, "rope_freqs.weight has shape"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_tensors_that_do_not_fit_are_one_clear_error(case: str) -> None:
    changes, expected = UNFIT[case]
    with pytest.raises(ModelFileError) as caught:
        config(its_tensors=tensors(changes))
    assert expected in caught.value.message


def test_an_unsupported_storage_type_names_the_supported_ones() -> None:
    with pytest.raises(ModelFileError, match=r"this build reads BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q5_0, .*Q8_0"):
        config(its_tensors=tensors({"blk.0.attn_q.weight": TensorType.Q3_K}))


ANY_VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
)


@given(st.dictionaries(st.sampled_from(sorted(METADATA)), ANY_VALUE, max_size=3))
def test_any_metadata_gives_a_description_or_one_clear_error(changes: dict[str, object]) -> None:
    with suppress(ModelFileError):
        assert config(changes).layers >= 1
