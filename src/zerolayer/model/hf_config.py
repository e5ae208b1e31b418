"""A Hugging Face ``config.json`` in GGUF's words, so that one place (``model_config``) checks every model.

Fields: https://huggingface.co/docs/transformers, ``LlamaConfig``, ``MistralConfig``, ``Qwen2Config``, ``Qwen3Config``;
``rope_parameters`` is what version 5 makes of ``rope_theta`` and ``rope_scaling``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

from zerolayer.errors import ModelFileError
from zerolayer.model.gguf import printable

_REMEDY = "Use a Llama, Mistral, Qwen2 or Qwen3 model, or a GGUF file of this one."
# By model_type. All keep rotary pairs in halves, whatever GGUF's converters make of them.
_ARCHITECTURE = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_CLASSES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
_INTEGERS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
}
_OPTIONAL = {"num_key_value_heads"}
_QWEN3_HEAD_DIM = 128  # the class's default; the others divide the hidden size


def gguf_metadata(config: Mapping[str, object], name: str) -> dict[str, object]:
    """What a GGUF file of this model would say of its shape. ``ModelFileError`` for what is not supported."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _ARCHITECTURE:
        shown = printable(kind) if isinstance(kind, str) else "none"
        raise ModelFileError(f"config.json: model_type {shown} is not supported. {_REMEDY}")
    _refuse_variants(config)
    architecture = _ARCHITECTURE[kind]
    out: dict[str, object] = {"general.architecture": architecture, "general.name": name}
    for theirs, ours in _INTEGERS.items():
        value = config.get(theirs)
        if value is None and theirs in _OPTIONAL:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelFileError(f"config.json: {theirs} is missing or no integer. {_REMEDY}")
        out[f"{architecture}.{ours}"] = value
    head_dim = config.get("head_dim")
    if head_dim is None and kind == "qwen3":
        head_dim = _QWEN3_HEAD_DIM
    if head_dim is not None:
        out |= {f"{architecture}.attention.key_length": head_dim, f"{architecture}.attention.value_length": head_dim}
    out[f"{architecture}.attention.layer_norm_rms_epsilon"] = config.get("rms_norm_eps", 1e-6)
    out[f"{architecture}.rope.freq_base"] = _rope(config).get("rope_theta", 10_000.0)
    window = config.get("sliding_window")
    # Qwen models carry a window that is used only where the flag says so.
    if window is not None and config.get("use_sliding_window", kind not in ("qwen2", "qwen3")):
        out[f"{architecture}.attention.sliding_window"] = window
    return out


def rope_factors(config: Mapping[str, object], head_dim: int) -> array[float] | None:
    """What divides the rotary frequencies: [head_dim / 2] for Llama 3.1 and later, None where nothing does.

    Source: ``transformers.modeling_rope_utils``, ``_compute_llama3_parameters``. Frequencies whose wave is much shorter
    than the original context stay, much longer ones are divided by ``factor``, between the two it changes smoothly.
    """
    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        shown = printable(kind) if isinstance(kind, str) else "not a name"
        raise ModelFileError(f"config.json: rotary scaling of type {shown} is not supported. {_REMEDY}")
    names = ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    base, factor, low, high, original = (_positive(rope, name, 10_000.0) for name in names)
    if low >= high:
        raise ModelFileError(f"config.json: low_freq_factor must be less than high_freq_factor. {_REMEDY}")
    factors = array("f")
    for i in range(head_dim // 2):
        turns = original / (2 * math.pi * base ** (2 * i / head_dim))  # of this pair within the original context
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def ties_embedding(config: Mapping[str, object], has_head: bool) -> bool:
    """Whether the embedding serves as output matrix; an output matrix in the file is then a copy."""
    tied = config.get("tie_word_embeddings")
    return tied if isinstance(tied, bool) else not has_head


def _positive(rope: Mapping[str, object], name: str, default: float) -> float:
    value = rope.get(name, default if name == "rope_theta" else None)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e12:
        raise ModelFileError(f"config.json: the rotary scaling's {name} is missing or no positive number. {_REMEDY}")
    return float(value)


def _rope(config: Mapping[str, object]) -> dict[str, object]:
    """Base and scaling in one, from either version's fields."""
    found: dict[str, object] = {}
    if (base := config.get("rope_theta")) is not None:
        found["rope_theta"] = base
    for key in ("rope_scaling", "rope_parameters"):
        value = config.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise ModelFileError(f"config.json: {key} is no JSON object. {_REMEDY}")
        found |= {name: item for name, item in (value or {}).items() if item is not None}
    return found


def _refuse_variants(config: Mapping[str, object]) -> None:
    classes = config.get("architectures")
    if isinstance(classes, list) and classes and not _CLASSES.intersection(map(str, classes)):
        raise ModelFileError(f"config.json: this is no model that writes text (architectures). {_REMEDY}")
    if config.get("quantization_config") is not None:
        raise ModelFileError(
            "config.json: the weights are quantised in a way that this build does not read (quantization_config). "
            "Use the BF16 or F16 model, or a GGUF file of it."
        )
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ModelFileError(f"config.json: hidden_act is not silu. {_REMEDY}")
    partial = config.get("partial_rotary_factor", _rope(config).get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise ModelFileError(f"config.json: partial_rotary_factor is not supported. {_REMEDY}")
