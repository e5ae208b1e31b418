"""Tiny random models as real GGUF files: every shape of the family, and complete enough for a whole server to run on.

The vocabulary is a byte-level BPE of 307 pieces: three control tokens, the 256 bytes in GPT-2's printable alphabet, and
48 merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

from reference.k_quants import K_QUANTS, random_blocks

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_ID = 2
TENSOR_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")  # K-quants: shapes of 256 inputs only
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MERGES = (
    "h e|i n|Ġ t|Ġ a|o n|e r|Ġt he|r e|a t|o u|Ġ s|Ġ w|e n|i s|Ġ o|i t|o r|e s|a n|Ġ c|in g|Ġ f|Ġ b|e d|"
    "Ġo f|Ġ p|a l|Ġa n|Ġan d|Ġt o|Ġ m|a r|Ġ in|Ġ h|Ġ d|l e|i c|o m|r o|a s|v e|l l|s t|e t|en t|i on|Ġ l|u s"
)


@dataclass(frozen=True)
class TinyShape:
    """A model's shape.

    ``qkv_bias`` adds q, k and v biases, ``head_norms`` the norms of query and key heads; ``tied`` leaves the head out.
    """

    name: str
    architecture: str = "llama"
    layers: int = 2
    hidden: int = 96
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 32
    intermediate: int = 160
    tied: bool = False
    qkv_bias: bool = False
    head_norms: bool = False
    rope_factors: bool = False  # rope_freqs.weight, as Llama 3.1 has it
    rope_base: float = 10000.0
    tensor_type: str = "F32"
    embedding_type: str = ""  # "": the same as tensor_type
    head_gain: float = 3.0  # standard deviation of the logits
    constant: bool = False  # logits that do not depend on the context
    seed: int = 1


LLAMA = TinyShape("tiny llama")
LLAMA_64 = TinyShape("tiny llama 64", hidden=160, heads=4, kv_heads=2, head_dim=64, intermediate=416, seed=2)
MISTRAL = TinyShape(
    "tiny mistral", hidden=224, heads=4, kv_heads=2, head_dim=128, intermediate=352, rope_base=1e6, seed=3
)
QWEN2 = TinyShape(
    "tiny qwen2", "qwen2", hidden=192, heads=6, kv_heads=2, tied=True, qkv_bias=True, rope_base=1e6, seed=4
)
QWEN2_64 = TinyShape(
    "tiny qwen2 64", "qwen2", layers=3, hidden=128, heads=2, head_dim=64, intermediate=288, qkv_bias=True, seed=5
)
LLAMA_31 = TinyShape(
    "tiny llama 3.1", hidden=96, heads=2, head_dim=64, rope_base=500000.0, rope_factors=True, tied=True, seed=8
)
SMOL = TinyShape("tiny smol", layers=1, hidden=32, heads=1, intermediate=32, tied=True, seed=6)
# Heads wider together than the hidden state, as in Qwen3-0.6B.
QWEN3 = TinyShape(
    "tiny qwen3",
    "qwen3",
    hidden=96,
    heads=4,
    kv_heads=2,
    head_dim=64,
    head_norms=True,
    rope_base=1e6,
    tied=True,
    seed=9,
)
QWEN3_128 = TinyShape("tiny qwen3 128", "qwen3", hidden=256, heads=2, head_dim=128, head_norms=True, seed=10)
SHAPES = (LLAMA, LLAMA_64, LLAMA_31, MISTRAL, QWEN2, QWEN2_64, QWEN3, QWEN3_128, SMOL)
WIDE = TinyShape("tiny wide", hidden=256, heads=4, kv_heads=2, head_dim=64, intermediate=512, seed=11)  # for K-quants
CONSTANT = TinyShape(
    "tiny constant", layers=1, hidden=32, heads=1, intermediate=32, constant=True, head_gain=1.5, seed=7
)


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes, by byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Pieces, their GGUF token types (1 normal, 3 control) and the merges, best first."""
    merges = _MERGES.split("|")
    pieces = [*CONTROL, *byte_alphabet(), *(merge.replace(" ", "") for merge in merges)]
    return pieces, [3] * len(CONTROL) + [1] * (len(pieces) - len(CONTROL)), merges


def write_tiny_model(path: Path, shape: TinyShape) -> Path:
    """Write ``shape`` with random weights; the same shape always gives the same file."""
    writer = GGUFWriter(path, shape.architecture)
    writer.add_name(shape.name)
    writer.add_block_count(shape.layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape.rope_base)
    if shape.head_dim * shape.heads != shape.hidden:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    pieces, types, merges = vocabulary()
    writer.add_vocab_size(len(pieces))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2" if shape.architecture.startswith("qwen") else "smollm")
    writer.add_token_list(pieces)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    random = np.random.default_rng(shape.seed)
    for name, tensor, kind in tensors_of(shape, len(pieces)):
        quantised = GGMLQuantizationType[kind]
        if kind in K_QUANTS:
            rows, columns = tensor.shape
            writer.add_tensor(name, random_blocks(kind, rows, columns, tensor.std(), random), raw_dtype=quantised)
        else:
            writer.add_tensor(name, quantize(tensor, quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors_of(shape: TinyShape, vocabulary_size: int) -> list[tuple[str, NDArray[np.float32], str]]:
    """Name, numbers and storage type of every tensor, under GGUF's names and in its order of rotary rows."""
    random = np.random.default_rng(shape.seed)

    def matrix(outputs: int, inputs: int, gain: float = 1.0) -> NDArray[np.float32]:
        return (random.standard_normal((outputs, inputs)) * gain / np.sqrt(inputs)).astype(np.float32)

    def vector(size: int, centre: float, spread: float) -> NDArray[np.float32]:
        return (centre + spread * random.standard_normal(size)).astype(np.float32)

    h, f, q, k = shape.hidden, shape.intermediate, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    kind = shape.tensor_type
    embedding = matrix(vocabulary_size, h, shape.head_gain)
    if shape.constant:
        embedding[:] = embedding[0]
    out = [("token_embd.weight", embedding, shape.embedding_type or kind)]
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        for part, outputs, inputs, gain in (
            ("attn_q", q, h, 1.5),
            ("attn_k", k, h, 1.5),
            ("attn_v", k, h, 1.0),
            ("attn_output", h, q, 0.0 if shape.constant else 1.0),
            ("ffn_gate", f, h, 1.0),
            ("ffn_up", f, h, 1.0),
            ("ffn_down", h, f, 0.0 if shape.constant else 1.0),
        ):
            out.append((f"{name}{part}.weight", matrix(outputs, inputs, gain), kind))
            if shape.qkv_bias and part in ("attn_q", "attn_k", "attn_v"):
                out.append((f"{name}{part}.bias", vector(outputs, 0.0, 0.5), "F32"))
        out += [(f"{name}{part}_norm.weight", vector(h, 1.0, 0.2), "F32") for part in ("attn", "ffn")]
        if shape.head_norms:
            norms = ("attn_q", "attn_k")
            out += [(f"{name}{part}_norm.weight", vector(shape.head_dim, 1.0, 0.4), "F32") for part in norms]
    out.append(("output_norm.weight", vector(h, 1.0, 0.2), "F32"))
    if shape.rope_factors:
        out.append(("rope_freqs.weight", np.geomspace(1, 8, shape.head_dim // 2).astype(np.float32), "F32"))
    if not shape.tied:
        out.append(("output.weight", matrix(vocabulary_size, h, shape.head_gain), kind))
    return out
