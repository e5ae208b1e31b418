"""The llama family in float32 numpy, written for clarity: the yardstick of the native engine.

It shares nothing with ``zerolayer``: files are read and dequantised by the ``gguf`` package, and the whole sequence
goes through every layer at once, without a key-value cache. Definitions: RMSNorm (arXiv:1910.07467), RoPE
(arXiv:2104.09864), SwiGLU (arXiv:2002.05202), grouped-query attention (arXiv:2305.13245).

Shapes: n positions, h hidden, q query heads, k key heads, d head width, f feed-forward width, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

Array = NDArray[np.float32]
HALVES = frozenset({"qwen2", "qwen3"})  # RoPE pairs (i, i + d/2); all others pair (2i, 2i + 1)


@dataclass(frozen=True)
class Shape:
    """The numbers that tell one llama-family model from another."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_eps: float
    rope_base: float

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Shape:
        """From GGUF metadata."""
        architecture = fields["general.architecture"]

        def number(key: str, default: float | None = None) -> Any:
            value = fields.get(f"{architecture}.{key}", default)
            assert value is not None, key
            return value

        hidden, heads = number("embedding_length"), number("attention.head_count")
        return cls(
            architecture=architecture,
            layers=number("block_count"),
            hidden=hidden,
            heads=heads,
            kv_heads=number("attention.head_count_kv", heads),
            head_dim=number("attention.key_length", hidden // heads),
            rms_eps=number("attention.layer_norm_rms_epsilon"),
            rope_base=number("rope.freq_base", 10000.0),
        )


def int8_per_output(matrix: Array) -> Array:
    """What remains of a matrix (outputs, inputs) when each output channel is stored in int8 with one scale."""
    scale = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-30) / 127
    return np.asarray(np.rint(matrix / scale) * scale, dtype=np.float32)


@dataclass(frozen=True)
class ReferenceModel:
    """All tensors in float32, and the forward pass over them."""

    shape: Shape
    tensors: Mapping[str, Array]

    @classmethod
    def load(cls, file: Path | GGUFReader) -> ReferenceModel:
        """Read and dequantise a whole GGUF file."""
        reader = file if isinstance(file, GGUFReader) else GGUFReader(file)
        fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("tokenizer.")}
        tensors = {t.name: np.asarray(dequantize(t.data, t.tensor_type), dtype=np.float32) for t in reader.tensors}
        return cls(Shape.of(fields), tensors)

    def with_matrices(self, change: Callable[[Array], Array]) -> ReferenceModel:
        """The same model with every matrix that is multiplied replaced by ``change(matrix)``.

        The embedding is only looked up; where it is the head as well, only the head changes.
        """
        embedding = self.tensors["token_embd.weight"]
        changed = {n: change(t) for n, t in self.tensors.items() if t.ndim == 2 and n != "token_embd.weight"}
        head = {"output.weight": changed.get("output.weight", change(embedding))}
        return replace(self, tensors={**self.tensors, **changed, **head})

    def logits(self, ids: Sequence[int]) -> Array:
        """Logits (n, v) of every position: row i predicts the token after ``ids[: i + 1]``."""
        s, w = self.shape, self.tensors
        x = w["token_embd.weight"][np.asarray(ids)]  # (n, h)
        cos, sin = _rotations(s, len(ids), w.get("rope_freqs.weight"))
        for layer in range(s.layers):
            block = {n.split(".", 2)[2]: t for n, t in w.items() if n.startswith(f"blk.{layer}.")}
            x = x + _attention(s, block, _rms_norm(x, block["attn_norm.weight"], s.rms_eps), cos, sin)
            x = x + _feed_forward(block, _rms_norm(x, block["ffn_norm.weight"], s.rms_eps))
        x = _rms_norm(x, w["output_norm.weight"], s.rms_eps)
        return np.asarray(x @ w.get("output.weight", w["token_embd.weight"]).T, dtype=np.float32)


def log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Natural log probabilities over the last axis, in float64."""
    x = np.asarray(logits, dtype=np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))


def perplexity(logits: NDArray[Any], ids: Sequence[int]) -> float:
    """exp of the mean negative log likelihood of ``ids[1:]`` under the logits (n, v) of ``ids``."""
    rows = log_softmax(logits[:-1])
    return float(np.exp(-rows[np.arange(len(ids) - 1), np.asarray(ids[1:])].mean()))


def _rms_norm(x: Array, gain: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * gain


def _rotations(s: Shape, n: int, factors: Array | None) -> tuple[Array, Array]:
    """cos and sin (n, 1, d/2) of each pair's angle; ``factors`` (d/2) divide the frequencies (Llama 3.1)."""
    frequency = s.rope_base ** (-np.arange(0, s.head_dim, 2, dtype=np.float64) / s.head_dim)
    if factors is not None:
        frequency = frequency / factors
    angle = np.arange(n)[:, None, None] * frequency
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _rotate(s: Shape, x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the pairs of x (n, heads, d) by their angles."""
    out = np.empty_like(x)
    if s.architecture in HALVES:
        first, second = slice(0, s.head_dim // 2), slice(s.head_dim // 2, None)
    else:
        first, second = slice(0, None, 2), slice(1, None, 2)
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def _attention(s: Shape, block: Mapping[str, Array], x: Array, cos: Array, sin: Array) -> Array:
    n = len(x)

    def heads(name: str, count: int) -> Array:
        y = x @ block[f"attn_{name}.weight"].T + block.get(f"attn_{name}.bias", np.float32(0))
        y = y.reshape(n, count, s.head_dim)
        gain = block.get(f"attn_{name}_norm.weight")  # Qwen3
        return y if gain is None else _rms_norm(y, gain, s.rms_eps)

    q = _rotate(s, heads("q", s.heads), cos, sin)
    k = _rotate(s, heads("k", s.kv_heads), cos, sin)
    v = heads("v", s.kv_heads)
    future = np.triu(np.full((n, n), -np.inf, dtype=np.float32), 1)
    out = np.empty_like(q)
    for head in range(s.heads):
        group = head * s.kv_heads // s.heads
        score = q[:, head] @ k[:, group].T / np.float32(np.sqrt(s.head_dim)) + future
        score = np.exp(score - score.max(axis=1, keepdims=True))
        out[:, head] = score / score.sum(axis=1, keepdims=True) @ v[:, group]
    return out.reshape(n, -1) @ block["attn_output.weight"].T


def _feed_forward(block: Mapping[str, Array], x: Array) -> Array:
    gate = x @ block["ffn_gate.weight"].T
    with np.errstate(over="ignore"):
        gate = gate / (1 + np.exp(-gate))
    return (gate * (x @ block["ffn_up.weight"].T)) @ block["ffn_down.weight"].T
