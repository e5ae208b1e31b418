"""The tiny models again, as folders in Hugging Face's format: written with numpy and json alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.tiny_model import CHATML, CONTROL, EOS_ID, TinyShape, tensors_of, vocabulary

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CLASS = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def safetensors_bytes(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A whole file of (dtype, shape, bytes)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values())


def write_tiny_folder(
    folder: Path, shape: TinyShape, dtype: str = "F32", *, vectors: str = "", shards: int = 1
) -> Path:
    """Write ``shape`` with the very weights of ``write_tiny_model`` and the same tokeniser.

    Matrices are stored as ``dtype``, vectors as ``vectors`` or also as ``dtype``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = {}
    for name, tensor, _ in tensors_of(shape, len(vocabulary()[0])):
        if name == "rope_freqs.weight":
            continue
        theirs, numbers = _theirs(shape, name, tensor)
        kind = vectors if vectors and numbers.ndim == 1 else dtype
        stored[theirs] = (kind, numbers.shape, _encoded(numbers, kind))
    _write_weights(folder, stored, shards)
    _write_json(folder / "config.json", config(shape))
    _write_json(folder / "generation_config.json", {"eos_token_id": [EOS_ID, 0]})
    _write_json(folder / "tokenizer.json", tokenizer(shape))
    named = {"bos_token": CONTROL[1], "eos_token": {"content": CONTROL[EOS_ID]}, "chat_template": CHATML}
    _write_json(folder / "tokenizer_config.json", named)
    return folder


def config(shape: TinyShape) -> dict[str, Any]:
    """``config.json``."""
    scaling = LLAMA3_ROPE if shape.rope_factors else None
    return {
        "architectures": [_CLASS[shape.architecture]],
        "model_type": shape.architecture,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": shape.rope_base,
        "rope_scaling": scaling,
        "tie_word_embeddings": shape.tied,
        "vocab_size": len(vocabulary()[0]),
    }


def tokenizer(shape: TinyShape) -> dict[str, Any]:
    """``tokenizer.json``: SmolLM2's way to cut text, or Qwen's."""
    pieces, _, merges = vocabulary()
    qwen = shape.architecture.startswith("qwen")
    split = {"type": "Split", "pattern": {"Regex": QWEN_SPLIT}, "behavior": "Isolated", "invert": False}
    steps = [split] if qwen else [{"type": "Digits", "individual_digits": True}]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": not qwen}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": name, "special": True, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
            for i, name in enumerate(CONTROL)
        ],
        "normalizer": {"type": "NFC"} if qwen else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def _theirs(shape: TinyShape, name: str, tensor: NDArray[np.float32]) -> tuple[str, NDArray[np.float32]]:
    """Name and numbers as ``transformers`` has them: rotary pairs of "llama" q and k rows in halves."""
    block, kind = name.rsplit(".", 1)
    layer = ""
    if block.startswith("blk."):
        _, number, block = block.split(".")
        layer = f"model.layers.{number}."
    if shape.architecture == "llama" and block in ("attn_q", "attn_k"):
        pairs = tensor.reshape(-1, shape.head_dim // 2, 2, tensor.shape[-1])
        tensor = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(tensor.shape)
    return f"{layer}{_NAMES[block]}.{kind}", tensor


def _encoded(numbers: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "F16":
        return numbers.astype(np.float16).tobytes()
    if dtype == "BF16":  # to nearest even, as torch rounds
        bits = numbers.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    return numbers.tobytes()


def _write_weights(folder: Path, stored: dict[str, tuple[str, tuple[int, ...], bytes]], shards: int) -> None:
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors_bytes(stored))
        return
    weight_map = {}
    for shard in range(shards):
        part = dict(list(stored.items())[shard::shards])
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        (folder / name).write_bytes(safetensors_bytes(part))
        weight_map |= dict.fromkeys(part, name)
    _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
