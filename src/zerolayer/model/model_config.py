"""The shape of a llama-family model: one small type for Llama, Mistral, Qwen2 and Qwen3, not a class per model.

Keys and tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "LLM" and "Base layers"; checked here
once, so that nothing behind this file meets a shape that does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import msgspec

from zerolayer.errors import ModelFileError
from zerolayer.model.gguf import printable
from zerolayer.model.tensor_type import TensorType
from zerolayer.model.weights import TensorInfo

# What the engine computes with.
READABLE = frozenset(
    {
        *(TensorType.F32, TensorType.F16, TensorType.BF16),
        *(TensorType.Q8_0, TensorType.Q4_0, TensorType.Q4_1, TensorType.Q5_0, TensorType.Q5_1),
        *(TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K),
    }
)

RopeLayout = Literal["interleaved", "halves"]
# GGUF's converters permute the q and k rows of "llama" models (Llama, Mistral, SmolLM2): rotary pairs lie side by side.
_ROPE_LAYOUT: dict[str, RopeLayout] = {
    "llama": "interleaved",
    "qwen2": "halves",
    "qwen3": "halves",
}

# Some ten times the largest public models of the family; no product of two overflows 64 bits.
_MAX_LAYERS, _MAX_HIDDEN, _MAX_HEADS, _MAX_HEAD_DIM = 1024, 1 << 17, 1024, 1024
_MAX_INTERMEDIATE, _MAX_VOCABULARY, _MAX_CONTEXT = 1 << 20, 1 << 22, 1 << 24

_REMEDY = "Use a complete file of a supported model."


class ModelConfig(msgspec.Struct, frozen=True):
    """A decoder-only transformer: RMS norm, rotary positions, grouped-query attention, SiLU-gated feed-forward.

    ``rope_layout``: rotary pairs are (2i, 2i+1) if "interleaved", (i, i + head_dim/2) if "halves". ``rope_factors``:
    the tensor ``rope_freqs.weight`` of head_dim/2 numbers divides the frequencies (Llama 3.1 and later).
    ``head_norms``: every query and key head goes through an RMS norm of its own before the rotation (Qwen3).
    ``tied_embedding``: there is no ``output.weight``; the token embedding serves as output matrix. ``context``: the
    longest sequence that the model was trained for. ``vocabulary``: rows of the embedding, padding included.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    rms_eps: float
    rope_base: float
    rope_layout: RopeLayout
    rope_factors: bool
    qkv_bias: bool
    head_norms: bool
    tied_embedding: bool
    context: int
    name: str
    chat_template: str | None

    @classmethod
    def from_gguf(
        cls,
        metadata: Mapping[str, object],
        tensors: Mapping[str, TensorInfo],
        *,
        rope_layout: RopeLayout | None = None,
    ) -> Self:
        """The configuration that a GGUF file describes, every number and every tensor's shape and type checked.

        ``rope_layout``: where the tensors do not come from a GGUF file. None: as its converters write the architecture.
        Raises ``ModelFileError`` for another architecture, for a feature of the family that is not supported and for
        anything that does not fit together.
        """
        fields = _Fields(metadata)
        _refuse_unsupported(fields)
        hidden = fields.integer("embedding_length", _MAX_HIDDEN)
        heads = fields.integer("attention.head_count", _MAX_HEADS)
        kv_heads = fields.integer("attention.head_count_kv", heads, default=heads)
        head_dim = fields.integer("attention.key_length", _MAX_HEAD_DIM, default=hidden // heads)
        _check_heads(fields, hidden, heads, kv_heads, head_dim)
        context = fields.integer("context_length", _MAX_CONTEXT)
        config = cls(
            architecture=fields.architecture,
            layers=fields.integer("block_count", _MAX_LAYERS),
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate=fields.integer("feed_forward_length", _MAX_INTERMEDIATE),
            vocabulary=_rows(tensors, "token_embd.weight"),
            rms_eps=fields.real("attention.layer_norm_rms_epsilon", 1e-12, 1e-2),
            rope_base=fields.real("rope.freq_base", 1.0, 1e12, default=10_000.0),
            rope_layout=rope_layout or _ROPE_LAYOUT[fields.architecture],
            rope_factors="rope_freqs.weight" in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            head_norms=fields.architecture == "qwen3",
            tied_embedding="output.weight" not in tensors,
            # Attention over a sliding window equals full attention as long as the sequence fits the window.
            context=fields.integer("attention.sliding_window", context, default=context, zero_is_absent=True),
            name=_name(metadata),
            chat_template=_chat_template(metadata),
        )
        _check_vocabulary(config, metadata)
        _check_tensors(config, tensors)
        return config


class _Fields:
    """Reads ``<architecture>.<key>`` and checks type and range."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str) or architecture not in _ROPE_LAYOUT:
            shown = printable(architecture) if isinstance(architecture, str) else "none"
            raise ModelFileError(
                f"The model's architecture ({shown}) is not supported; this build runs "
                f"{', '.join(sorted(_ROPE_LAYOUT))} (Llama, SmolLM2, Mistral, Qwen2 and Qwen3 models). " + _REMEDY
            )
        self.architecture = architecture
        self._metadata = metadata

    def get(self, key: str) -> object:
        return self._metadata.get(f"{self.architecture}.{key}")

    def integer(self, key: str, limit: int, *, default: int | None = None, zero_is_absent: bool = False) -> int:
        """An integer from 1 to ``limit``. A list is taken if all its members agree (one number per layer)."""
        value = self.get(key)
        if (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and len(value)
            and all(item == value[0] for item in value)
        ):
            value = value[0]
        if default is not None and (value is None or (zero_is_absent and value == 0)):
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelFileError(
                f"The model file's {self.architecture}.{key} is missing or no single integer. {_REMEDY}"
            )
        if zero_is_absent:
            value = min(value, limit)
        if not 1 <= value <= limit:
            raise ModelFileError(
                f"The model file's {self.architecture}.{key} is {value}; it must be 1 to {limit}. {_REMEDY}"
            )
        return value

    def real(self, key: str, low: float, high: float, *, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not _finite(value):
            raise ModelFileError(
                f"The model file's {self.architecture}.{key} is missing or no finite number. {_REMEDY}"
            )
        if not low <= value <= high:
            raise ModelFileError(
                f"The model file's {self.architecture}.{key} is {value}; it must be {low} to {high}. {_REMEDY}"
            )
        return float(value)


def _finite(value: float) -> bool:
    """Whether a number is one that a float can hold: JSON has whole numbers of any length."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _refuse_unsupported(fields: _Fields) -> None:
    if fields.get("expert_count"):
        raise ModelFileError("The model is a mixture of experts, which this build does not run. Use a dense model.")
    scaling = fields.get("rope.scaling.type")
    factor = fields.get("rope.scaling.factor")
    linear_one = scaling == "linear" and factor in (None, 1, 1.0)
    if scaling not in (None, "none") and not linear_one:
        shown = printable(scaling) if isinstance(scaling, str) else "not a name"
        raise ModelFileError(
            f"The model scales its rotary positions (rope.scaling.type {shown}), which this build does not support. "
            "Use a model without rope scaling, or a file converted without it."
        )
    if fields.get("rope.scale_linear") not in (None, 1, 1.0):
        raise ModelFileError(
            "The model scales its rotary positions (rope.scale_linear), which this build does not support. " + _REMEDY
        )


def _check_heads(fields: _Fields, hidden: int, heads: int, kv_heads: int, head_dim: int) -> None:
    key_length = fields.get("attention.key_length")
    if key_length is None and hidden % heads:
        raise ModelFileError(f"{heads} attention heads do not divide the hidden size {hidden}. {_REMEDY}")
    if heads % kv_heads:
        raise ModelFileError(f"{kv_heads} key/value heads do not divide the {heads} attention heads. {_REMEDY}")
    if head_dim % 2:
        raise ModelFileError(f"The head size is {head_dim}; rotary positions need an even one. {_REMEDY}")
    for key in ("attention.value_length", "rope.dimension_count"):
        value = fields.integer(key, _MAX_HEAD_DIM, default=head_dim)
        if value != head_dim:
            raise ModelFileError(
                f"The model's {key} is {value} and its head size {head_dim}; this build needs both equal. {_REMEDY}"
            )


def _rows(tensors: Mapping[str, TensorInfo], name: str) -> int:
    info = tensors.get(name)
    if info is None or len(info.shape) != 2:
        raise ModelFileError(f"The model file has no matrix {name}. {_REMEDY}")
    if info.shape[0] > _MAX_VOCABULARY:
        raise ModelFileError(f"The vocabulary has {info.shape[0]} tokens; the limit is {_MAX_VOCABULARY}. {_REMEDY}")
    return info.shape[0]


def _name(metadata: Mapping[str, object]) -> str:
    """The model's own name, fit for a terminal and a JSON body: printable characters only."""
    name = metadata.get("general.name")
    cleaned = "".join(char for char in name if char.isprintable())[:128].strip() if isinstance(name, str) else ""
    return cleaned or "model"


def _chat_template(metadata: Mapping[str, object]) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise ModelFileError(f"The model file's tokenizer.chat_template is no text. {_REMEDY}")
    return template or None


def _check_vocabulary(config: ModelConfig, metadata: Mapping[str, object]) -> None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, Sequence) else 0
    if not 0 < count <= config.vocabulary:
        raise ModelFileError(
            f"The model file lists {count} tokens, and its embedding has {config.vocabulary} rows. {_REMEDY}"
        )


def _expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor that the model must have, row-major: (outputs, inputs)."""
    hidden, wide = config.hidden, config.intermediate
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (queries, hidden),
        "attn_k.weight": (keys, hidden),
        "attn_v.weight": (keys, hidden),
        "attn_output.weight": (hidden, queries),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (wide, hidden),
        "ffn_up.weight": (wide, hidden),
        "ffn_down.weight": (hidden, wide),
    }
    if config.qkv_bias:
        layer |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    if config.head_norms:
        layer |= {"attn_q_norm.weight": (config.head_dim,), "attn_k_norm.weight": (config.head_dim,)}
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (config.vocabulary, hidden),
        "output_norm.weight": (hidden,),
    }
    if not config.tied_embedding:
        shapes["output.weight"] = (config.vocabulary, hidden)
    if config.rope_factors:
        shapes["rope_freqs.weight"] = (config.head_dim // 2,)
    for index in range(config.layers):
        shapes.update((f"blk.{index}.{name}", shape) for name, shape in layer.items())
    return shapes


def _check_tensors(config: ModelConfig, tensors: Mapping[str, TensorInfo]) -> None:
    expected = _expected_shapes(config)
    for name, shape in expected.items():
        info = tensors.get(name)
        if info is None:
            raise ModelFileError(f"The model file has no tensor {name}, which its architecture needs. {_REMEDY}")
        if info.shape != shape:
            raise ModelFileError(f"Tensor {name} has shape {info.shape}; the model's sizes ask for {shape}. {_REMEDY}")
        if info.type not in READABLE:
            raise ModelFileError(
                f"Tensor {name} is stored as {info.type}, which is not supported yet: this build reads "
                f"{', '.join(sorted(READABLE))}. Use a Q8_0, Q4_K_M, F16 or BF16 file of the model."
            )
        if (len(shape) == 1) and info.type not in (TensorType.F32, TensorType.F16, TensorType.BF16):
            raise ModelFileError(
                f"Tensor {name} is a vector stored as {info.type}; vectors must be F32, F16 or BF16. {_REMEDY}"
            )
    # A weight or bias that the computation would leave out silently gives wrong answers: refuse it.
    for name in tensors:
        if name not in expected and name.endswith((".bias", "_norm.weight", "_exps.weight", ".scale")):
            raise ModelFileError(
                f"Tensor {printable(name)} belongs to a variant of the architecture, which this build does not run. "
                f"{_REMEDY}"
            )
