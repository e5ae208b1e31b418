"""The CPU engine: a GGUF file in packed integer weights, slots in static memory, steps in native threads."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from zerolayer.errors import EngineFailed, StartupError
from zerolayer.model import _native
from zerolayer.model.engine import EngineInfo, Generation, SampledToken, StepPlan
from zerolayer.model.gguf import GgufFile
from zerolayer.model.model_config import ModelConfig
from zerolayer.wire.schema import Alternative, FinishReason, TokenLogprob

Progress = Callable[[str, int, int], None]  # (what, done, of)

_FINISH = {0: None, 1: FinishReason.STOP, 2: FinishReason.LENGTH}  # by native/engine.hpp's Finish
_SEED_MASK = (1 << 64) - 1


class NativeEngine:
    """Implements ``Engine`` on ``_native.Engine``; one thread calls, except ``describe``."""

    def __init__(self, native: _native.Engine, info: EngineInfo, stop_ids: Sequence[int]) -> None:
        self._engine: _native.Engine | None = native
        self._info = info
        self._stop_ids = list(stop_ids)

    @classmethod
    def load(
        cls,
        gguf: GgufFile,
        config: ModelConfig,
        *,
        slots: int,
        slot_tokens: int,
        chunk_tokens: int,
        threads: int,
        kernels: str | None = None,
        stop_ids: Sequence[int] = (),
        notes: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Self:
        """Take all memory and pack all weights. ``kernels`` None: the best set of this processor.

        ``stop_ids`` end a generation unless it asks to ignore them. Raises ``StartupError`` when memory or the
        kernel set is missing.
        """
        name = kernels or _native.kernel_sets()[0]
        try:
            native = _create(config, slots, slot_tokens, chunk_tokens, threads, name)
            _load_weights(native, gguf, config, progress or _silent)
        except ValueError as error:
            raise StartupError(
                f"The CPU engine cannot run this model with the kernel set {name!r}: {error}. "
                f"This processor allows: {', '.join(_native.kernel_sets())}."
            ) from None
        except RuntimeError:
            raise StartupError(
                f"There is no memory for {slots} slots of {slot_tokens} tokens. Use fewer (--slots) or shorter "
                "(--slot-tokens) slots."
            ) from None
        megabytes = native.bytes >> 20
        info = EngineInfo(
            engine="native",
            kernels=name,
            threads=threads,
            slots=slots,
            slot_tokens=slot_tokens,
            chunk_tokens=chunk_tokens,
            vocabulary=config.vocabulary,
            notes=(*notes, f"{megabytes} MB of memory, taken at start"),
        )
        return cls(native, info, stop_ids)

    def describe(self) -> EngineInfo:
        return self._info

    def open(self, slot: int, generation: Generation) -> None:
        sampling = generation.sampling
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed & _SEED_MASK
        try:
            self._native.open(
                slot,
                np.asarray(generation.prompt, dtype=np.int32),
                generation.max_tokens,
                sampling.temperature,
                sampling.top_p,
                sampling.top_k,
                sampling.min_p,
                sampling.repetition_penalty,
                sampling.presence_penalty,
                sampling.frequency_penalty,
                seed,
                -1 if sampling.top_logprobs is None else sampling.top_logprobs,
                [] if generation.ignore_eos else self._stop_ids,
            )
        except ValueError as error:
            raise EngineFailed(f"The engine refused a generation: {error}.") from None

    def prefill_left(self, slot: int) -> int:
        return self._native.prefill_left(slot)

    def step(self, plan: StepPlan) -> list[SampledToken]:
        try:
            sampled = self._native.step(plan.decode, plan.prefill_slot, plan.prefill_tokens)
        except ValueError as error:
            raise EngineFailed(f"The engine refused a step: {error}.") from None
        return [
            SampledToken(slot, token_id, _FINISH[finish], _logprob(token_id, logprob))
            for slot, token_id, finish, logprob in sampled
        ]

    def close(self, slot: int) -> None:
        self._native.close(slot)

    def shutdown(self) -> None:
        self._engine = None  # its threads end and its memory goes with it

    @property
    def _native(self) -> _native.Engine:
        if self._engine is None:
            raise EngineFailed("The engine is shut down.")
        return self._engine

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Teacher-forced logits [len(token_ids), vocabulary], through slot 0, which must be closed."""
        out = np.empty((len(token_ids), self._info.vocabulary), dtype=np.float32)
        self._native.logits(np.asarray(token_ids, dtype=np.int32), out)
        return out


def needed_bytes(config: ModelConfig, slots: int, slot_tokens: int, chunk_tokens: int) -> int:
    """What ``load`` takes, within a few per cent: a byte a weight, the embedding as in the file, and the slots' KV."""
    attention = config.hidden * config.head_dim * (2 * config.heads + 2 * config.kv_heads)
    per_layer = attention + 3 * config.hidden * config.intermediate
    weights = config.layers * per_layer + 2 * config.vocabulary * config.hidden
    kv_token = config.layers * config.kv_heads * (3 * config.head_dim + 8)  # 2 bytes a key, 1 a value, two scales
    row = 16 * (config.hidden + config.intermediate) + 4 * config.head_dim * (config.heads + 2 * config.kv_heads)
    return weights + slots * (slot_tokens * kv_token + 6 * config.vocabulary) + (slots + chunk_tokens) * row


def _logprob(token_id: int, logprob: tuple[float, list[tuple[int, float]]] | None) -> TokenLogprob | None:
    if logprob is None:
        return None
    return TokenLogprob(token_id, logprob[0], tuple(Alternative(other, value) for other, value in logprob[1]))


def _create(
    config: ModelConfig, slots: int, slot_tokens: int, chunk_tokens: int, threads: int, kernels: str
) -> _native.Engine:
    return _native.Engine.create(
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate=config.intermediate,
        vocabulary=config.vocabulary,
        rms_eps=config.rms_eps,
        rope_base=config.rope_base,
        slots=slots,
        slot_tokens=slot_tokens,
        chunk_tokens=chunk_tokens,
        threads=threads,
        kernels=kernels,
    )


def _silent(_what: str, _done: int, _of: int) -> None:
    pass


def _load_weights(native: _native.Engine, gguf: GgufFile, config: ModelConfig, progress: Progress) -> None:
    """Tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Base layers"."""

    def matrix(name: str) -> _native.Tensor:
        info = gguf.tensors[name]
        rows, columns = info.shape
        return _native.Tensor(info.type.number, np.frombuffer(gguf.data(name), dtype=np.uint8), rows, columns)

    def vector(name: str) -> NDArray[np.float32]:
        return np.frombuffer(gguf.data(name), dtype=np.float32)

    if config.rope_factors:
        native.load_rope_factors(vector("rope_freqs.weight"))
    for layer in range(config.layers):
        progress("weights", layer, config.layers + 1)
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
        native.load_output(layer, matrix(block + "attn_output.weight"))
        native.load_gate_up(layer, matrix(block + "ffn_gate.weight"), matrix(block + "ffn_up.weight"))
        native.load_down(layer, matrix(block + "ffn_down.weight"))
        native.load_norms(layer, vector(block + "attn_norm.weight"), vector(block + "ffn_norm.weight"))
    progress("weights", config.layers, config.layers + 1)
    embedding = matrix("token_embd.weight")
    native.load_embedding(embedding)
    native.load_head(embedding if config.tied_embedding else matrix("output.weight"), vector("output_norm.weight"))
    progress("weights", config.layers + 1, config.layers + 1)
