"""Folders in Hugging Face's format: the same model as from a GGUF file, bit for bit, and one clear error otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.engines import Engines, with_type
from reference.tiny_folder import config, tokenizer, write_tiny_folder
from reference.tiny_model import EOS_ID, LLAMA, LLAMA_31, LLAMA_64, MISTRAL, QWEN2, QWEN3, TinyShape, write_tiny_model
from zerolayer.errors import ModelFileError, StartupError
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.hf_config import rope_factors
from zerolayer.model.hf_folder import HfFolder
from zerolayer.model.native_engine import NativeEngine
from zerolayer.model.source import ModelSource, open_source
from zerolayer.model.weights import vector

IDS = [(7 + 41 * i) % 307 for i in range(40)]
Edit = Callable[[Path], None]


def logits(source: ModelSource) -> np.ndarray:
    options = EngineOptions(slots=2, slot_tokens=64, chunk_tokens=16, threads=1)
    engine = NativeEngine.load(source.weights, source.config, options)
    try:
        return engine.logits(IDS)
    finally:
        engine.shutdown()
        source.weights.close()


def edited(name: str, **changes: object) -> Edit:
    """Changes members of a JSON file; None removes one."""

    def apply(folder: Path) -> None:
        members = {**json.loads((folder / name).read_text()), **changes}
        (folder / name).write_text(json.dumps({key: value for key, value in members.items() if value is not None}))

    return apply


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_folder(tmp_path / "tiny", LLAMA)


@pytest.mark.parametrize("shape", [LLAMA, LLAMA_64, MISTRAL, QWEN2, QWEN3], ids=lambda shape: shape.name)
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_folder_and_a_gguf_file_of_the_same_weights_give_the_same_bits(
    tmp_path: Path, engines: Engines, shape: TinyShape, dtype: str
) -> None:
    got = logits(open_source(write_tiny_folder(tmp_path / "tiny", shape, dtype, vectors="F32")))
    assert got.tobytes() == engines.open(with_type(shape, dtype), slot_tokens=64).logits(IDS).tobytes()


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_vectors_of_two_bytes_a_number_are_read(tmp_path: Path, dtype: str) -> None:
    wide, narrow = (
        open_source(write_tiny_folder(tmp_path / kind, QWEN2, vectors=kind)).weights for kind in ("F32", dtype)
    )
    for name in ("output_norm.weight", "blk.0.attn_q.bias"):
        assert vector(narrow, name) == pytest.approx(vector(wide, name), rel=2**-8)
        assert narrow.tensors[name].n_bytes * 2 == wide.tensors[name].n_bytes


def test_shards_are_one_model(tmp_path: Path) -> None:
    whole, parts = (write_tiny_folder(tmp_path / str(n), LLAMA, shards=n) for n in (1, 3))
    assert logits(open_source(whole)).tobytes() == logits(open_source(parts)).tobytes()


def test_llama_3_scaling_divides_slow_frequencies_only() -> None:
    shape = {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }}  # fmt: skip
    factors = rope_factors(shape, 128)
    assert factors is not None
    assert factors[0] == 1
    assert factors[-1] == pytest.approx(8)
    assert (np.diff(factors) >= 0).all()
    assert 1 < factors[32] < 8  # between: some 1.5 turns within the original context


def test_llama_3_scaling_reaches_the_engine(tmp_path: Path) -> None:
    scaled = write_tiny_folder(tmp_path / "scaled", LLAMA_31)
    plain = write_tiny_folder(tmp_path / "plain", LLAMA_31)
    edited("config.json", rope_scaling=None)(plain)
    assert open_source(scaled).config.rope_factors
    assert not np.array_equal(logits(open_source(scaled)), logits(open_source(plain)))


def test_version_5_of_transformers_writes_the_rotary_base_elsewhere(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "tiny", MISTRAL)
    edited("config.json", rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6})(folder)
    assert open_source(folder).config.rope_base == 1e6


def test_the_words_are_those_of_the_gguf_file(tmp_path: Path) -> None:
    theirs = open_source(write_tiny_model(tmp_path / "tiny.gguf", QWEN2))
    ours = open_source(write_tiny_folder(tmp_path / "tiny", QWEN2))
    for name in ("raw", "kinds", "pieces", "texts", "merges", "bos_id", "eos_id", "add_bos", "model", "pre"):
        assert getattr(ours.vocabulary, name) == getattr(theirs.vocabulary, name), name
    assert ours.config.chat_template == theirs.config.chat_template
    text = "The hero of the tale, in 1984."
    assert ours.build_encoder().encode(text) == theirs.build_encoder().encode(text)


def test_every_end_of_a_reply_in_the_generation_config_counts(folder: Path) -> None:
    assert open_source(folder).vocabulary.eos_ids == {EOS_ID, 0}


def test_a_template_file_comes_before_the_one_in_the_tokenizer_config(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert open_source(folder).config.chat_template == "{{ messages[0].content }}"


def test_of_several_templates_the_default_is_taken(folder: Path) -> None:
    several = [{"name": []}, {"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    edited("tokenizer_config.json", chat_template=several)(folder)
    assert open_source(folder).config.chat_template == "yes"


def test_a_tied_head_is_the_embedding_even_if_a_copy_is_stored(folder: Path) -> None:
    edited("config.json", tie_word_embeddings=True)(folder)
    source = open_source(folder)
    assert source.config.tied_embedding
    assert "output.weight" not in source.weights.tensors


def test_a_window_that_is_not_used_does_not_limit_the_context(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "tiny", QWEN2)
    edited("config.json", sliding_window=128, use_sliding_window=False)(folder)
    assert open_source(folder).config.context == 4096


def test_a_window_that_is_used_limits_the_context(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "tiny", MISTRAL)
    edited("config.json", sliding_window=128)(folder)
    assert open_source(folder).config.context == 128


def removed(name: str) -> Edit:
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str) -> Edit:
    def apply(folder: Path) -> None:
        (folder / name).write_text(text)

    return apply


def all_of(*edits: Edit) -> Edit:
    def apply(folder: Path) -> None:
        for edit in edits:
            edit(folder)

    return apply


REFUSED: dict[str, tuple[Edit, str]] = {
    "no configuration": (removed("config.json"), "has no config.json"),
    "no weights": (removed("model.safetensors"), "neither model.safetensors"),
    "pickled weights": (
        all_of(removed("model.safetensors"), written("pytorch_model.bin", "")),
        "safetensors only, no pickled",
    ),
    "a GGUF file": (all_of(removed("model.safetensors"), written("tiny.gguf", "")), "Give --model the .gguf file"),
    "no tokenizer": (removed("tokenizer.json"), "has no tokenizer.json"),
    "damaged configuration": (written("config.json", "{"), "config.json is not valid JSON"),
    "nested configuration": (written("config.json", "[" * 100_000), "config.json is not valid JSON"),
    "configuration of another kind": (written("config.json", "[]"), "is no JSON object"),
    "another architecture": (edited("config.json", model_type="mamba"), "model_type 'mamba' is not supported"),
    "a classifier": (edited("config.json", architectures=["LlamaForSequenceClassification"]), "no model that writes"),
    "packed weights": (edited("config.json", quantization_config={"bits": 4}), "quantization_config"),
    "another activation": (edited("config.json", hidden_act="gelu"), "hidden_act"),
    "partial rotation": (edited("config.json", partial_rotary_factor=0.5), "partial_rotary_factor"),
    "other rotary scaling": (edited("config.json", rope_scaling={"type": "yarn"}), "type 'yarn' is not supported"),
    "scaling without its numbers": (edited("config.json", rope_scaling={"rope_type": "llama3"}), "factor is missing"),
    "no number of layers": (edited("config.json", num_hidden_layers=None), "num_hidden_layers is missing"),
    "a layer too many": (edited("config.json", num_hidden_layers=3), "no tensor blk.2."),
    "a size that does not fit": (edited("config.json", intermediate_size=161), "has shape"),
    "no heads": (edited("config.json", num_attention_heads=0, head_dim=None), "must be 1 to"),
    "a number that no float holds": (edited("config.json", rope_theta=10**400), "no finite number"),
    "an epsilon that no float holds": (edited("config.json", rms_norm_eps=10**400), "no finite number"),
    "a beginning that is no token": (
        all_of(
            edited("config.json", bos_token_id=10**6),
            edited("tokenizer_config.json", bos_token=None),
            edited("tokenizer.json", post_processor={"single": [{"SpecialToken": {"id": "<|im_start|>"}}]}),
        ),
        "bos_token_id is not one of",
    ),
    "an end that is no token": (edited("generation_config.json", eos_token_id=[307]), "eos_token_id is not one of"),
    "a hundred ends": (
        edited("generation_config.json", eos_token_id=list(range(100))),
        "names 100 tokens; the limit is",
    ),
    "an end that is no number": (edited("generation_config.json", eos_token_id="2"), "no token id"),
    "a template that is no text": (edited("tokenizer_config.json", chat_template=3), "chat_template"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_one_clear_error(case: str, folder: Path) -> None:
    edit, expected = REFUSED[case]
    edit(folder)
    with pytest.raises(ModelFileError) as caught:
        open_source(folder)
    assert expected in caught.value.message


INDEXES: dict[str, tuple[Any, str]] = {
    "no map": ({}, "has no weight_map"),
    "a path outside": ({"weight_map": {"a": "../model.safetensors"}}, "which is no safetensors file beside it"),
    "a file of another kind": ({"weight_map": {"a": "config.json"}}, "which is no safetensors file beside it"),
    "an absent file": ({"weight_map": {"a": "b.safetensors"}}, "Cannot read"),
    "an absent tensor": ({"weight_map": {"a": "model.safetensors"}}, "is not in model.safetensors"),
}


@pytest.mark.parametrize("case", INDEXES)
def test_an_index_that_does_not_fit_is_one_clear_error(case: str, folder: Path) -> None:
    index, expected = INDEXES[case]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFileError) as caught:
        HfFolder.open(folder)
    assert expected in caught.value.message


@pytest.fixture
def renamed(folder: Path) -> Iterator[Callable[[str, str], Path]]:
    def rename(old: str, new: str) -> Path:
        path = folder / "model.safetensors"
        raw = path.read_bytes()
        assert len(old) == len(new)
        path.write_bytes(raw.replace(old.encode(), new.encode(), 1))
        return folder

    return rename


def test_a_tensor_of_a_variant_is_refused_not_left_out(renamed: Callable[[str, str], Path]) -> None:
    with pytest.raises(ModelFileError, match="belongs to a variant"):
        HfFolder.open(renamed("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.xx_gate.weight"))


def test_a_storage_type_that_is_not_read_is_named(renamed: Callable[[str, str], Path]) -> None:
    with pytest.raises(ModelFileError, match="stored as I32"):
        HfFolder.open(renamed('"F32"', '"I32"'))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 40) | st.just(10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
MEMBERS = {
    "config.json": (*config(LLAMA), "rope_parameters", "sliding_window", "partial_rotary_factor", "eos_token_id"),
    "generation_config.json": ("eos_token_id",),
    "tokenizer.json": tuple(tokenizer(LLAMA)),
    "tokenizer_config.json": ("bos_token", "eos_token", "chat_template", "add_bos_token"),
}


@pytest.mark.parametrize("name", MEMBERS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_any_json_gives_a_description_or_one_clear_error(name: str, data: st.DataObject, folder: Path) -> None:
    whole = (folder / name).read_text()
    changes = data.draw(st.dictionaries(st.sampled_from(MEMBERS[name]), JSON, min_size=1, max_size=3))
    try:
        (folder / name).write_text(json.dumps({**json.loads(whole), **changes}))
        source = open_source(folder)
        source.build_encoder()
    except (ModelFileError, StartupError) as error:
        assert error.message
    else:
        source.weights.close()
    finally:
        (folder / name).write_text(whole)


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(member=st.sampled_from(sorted(tokenizer(LLAMA)["model"])), value=JSON)
def test_any_tokeniser_model_gives_an_encoder_or_one_clear_error(member: str, value: object, folder: Path) -> None:
    parsed = tokenizer(LLAMA)
    parsed["model"][member] = value
    (folder / "tokenizer.json").write_text(json.dumps(parsed))
    try:
        source = open_source(folder)
        assert source.build_encoder().encode("the sea") is not None
    except (ModelFileError, StartupError) as error:
        assert error.message
