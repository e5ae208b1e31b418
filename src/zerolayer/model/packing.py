"""A model's tensors become the native engine's packed weights, in parts, so that others can go between them."""

from __future__ import annotations

from collections.abc import Callable

from zerolayer.errors import ModelFileError
from zerolayer.model import _native
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.weights import Weights
from zerolayer.model.weights import vector as floats

Progress = Callable[[str, int, int], None]  # (what, done, of)

_PART_BYTES = 16 << 20  # of memory that is taken in one go


def _take_memory(native: _native.Engine, progress: Progress) -> None:
    parts = native.bytes // _PART_BYTES + 1
    for part in range(parts):
        progress("memory", part, parts)
        native.touch(part, parts)


def fill(native: _native.Engine, weights: Weights, config: ModelConfig, progress: Progress, *, fine: bool) -> None:
    """Take the memory that there is to take, then pack every tensor.

    Raises ``ModelFileError`` where one holds something that is no finite number, or larger than any model's.
    """
    _take_memory(native, progress)
    try:
        _pack(native, weights, config, progress, fine=fine)
    except _native.DamagedWeights:
        raise ModelFileError(
            "The model file is damaged: some of its weights are no finite numbers, or far too large. Download the file "
            "again and compare its checksum."
        ) from None


def _pack(native: _native.Engine, weights: Weights, config: ModelConfig, progress: Progress, *, fine: bool) -> None:
    """Their names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Base layers"."""
    read: list[_native.Tensor] = []  # their bytes are looked at twice

    def matrix(name: str) -> _native.Tensor:
        info = weights.tensors[name]
        rows, columns = info.shape
        read.append(_native.Tensor(info.type.number, weights.data(name), rows, columns))
        return read[-1]

    def vector(name: str) -> memoryview[float]:
        return floats(weights, name)

    if config.rope_factors:
        native.load_rope_factors(vector("rope_freqs.weight"))
    parts = 4 * (config.layers + 1)  # of about the same size, but for the last ones: the words

    def part(layer: int, number: int) -> None:
        progress("weights", 4 * layer + number, parts)

    for layer in range(config.layers):
        part(layer, 0)
        block = f"blk.{layer}."
        native.load_qkv(
            layer,
            matrix(block + "attn_q.weight"),
            matrix(block + "attn_k.weight"),
            matrix(block + "attn_v.weight"),
            config.rope_layout == "interleaved",
        )
        if config.qkv_bias:
            native.load_qkv_bias(
                layer, vector(block + "attn_q.bias"), vector(block + "attn_k.bias"), vector(block + "attn_v.bias")
            )
        if config.head_norms:
            native.load_head_norms(layer, vector(block + "attn_q_norm.weight"), vector(block + "attn_k_norm.weight"))
        part(layer, 1)
        native.load_output(layer, matrix(block + "attn_output.weight"))
        part(layer, 2)
        native.load_gate_up(layer, matrix(block + "ffn_gate.weight"), matrix(block + "ffn_up.weight"))
        part(layer, 3)
        native.load_down(layer, matrix(block + "ffn_down.weight"))
        native.load_norms(layer, vector(block + "attn_norm.weight"), vector(block + "ffn_norm.weight"))
    part(config.layers, 0)
    embedding = matrix("token_embd.weight")
    native.load_embedding(embedding, config.tied_embedding)
    part(config.layers, 2)
    native.load_head(embedding if config.tied_embedding else matrix("output.weight"), vector("output_norm.weight"))
    part(config.layers, 3)
    if fine:
        _refine(native, progress)
    part(config.layers + 1, 0)


def _refine(native: _native.Engine, progress: Progress) -> None:
    matrices = native.find_fine()  # which takes a step of 16 rows
    for done in range(matrices):
        progress("fine weights", done, matrices)
        native.pack_fine()
