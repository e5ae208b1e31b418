"""The CPU engine: a model in packed integer weights, slots in static memory, steps in native threads."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import msgspec

from zerolayer.errors import EngineFailed, StartupError
from zerolayer.model import _native
from zerolayer.model.engine import Broken, EngineInfo, Generation, SampledToken, StepPlan
from zerolayer.model.engine_options import EngineOptions
from zerolayer.model.masks import Masks
from zerolayer.model.model_config import ModelConfig
from zerolayer.model.packing import Progress, fill
from zerolayer.model.placement import page_note, pinning_refused
from zerolayer.model.prefix_cache import BLOCK, Hit, Kept, PrefixCache
from zerolayer.model.shared_cores import ALONE, Turn
from zerolayer.model.tensor_type import TensorType
from zerolayer.model.weights import Weights
from zerolayer.wire.schema import Alternative, FinishReason, Sampling, TokenLogprob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_FINISHES = (None, FinishReason.STOP, FinishReason.LENGTH)  # by native/engine.hpp's Finish
# Types whose groups the kernels take as they are (native/pack_groups.cpp).
EXACT = frozenset({TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0})
# Tensors that the kernels compute as one matrix, which has one type if it is kept exactly.
ONE_MATRIX = {"attn_q.weight": ("attn_k.weight", "attn_v.weight"), "ffn_gate.weight": ("ffn_up.weight",)}
_SEED_MASK = (1 << 64) - 1
_INT32 = "i"  # array's code


class _Open(msgspec.Struct):
    """What an open slot holds."""

    generation: Generation
    prompt: array[int]
    hit: Hit | None
    keeps: int  # so many tokens of the prompt, from its first on, are kept when they are computed; 0: none any more
    constant: bool


class NativeEngine:
    """Implements ``Engine`` on ``_native.Engine``; one thread calls, except ``describe``."""

    def __init__(
        self, native: _native.Engine, info: EngineInfo, stop_ids: Sequence[int], prefixes: PrefixCache
    ) -> None:
        self._engine: _native.Engine | None = native
        self._info = info
        self._tokens = _native.Tokens(SampledToken, _FINISHES, _logprob, Broken.NUMBERS)
        self._stop_ids = list(stop_ids)
        self._prefixes = prefixes
        self._masks = Masks(native.mask_address, native.mask_bytes, info.slots + 1, info.threads)
        self._open: dict[int, _Open] = {}
        self._scores: dict[int, list[TokenLogprob]] = {}  # of the prompts that are scored, as far as they are read

    @classmethod
    def load(
        cls,
        weights: Weights,
        config: ModelConfig,
        options: EngineOptions,
        progress: Progress | None = None,
    ) -> Self:
        """Take all memory and pack all weights.

        Raises ``StartupError`` without memory or kernel set, ``ModelFileError`` for weights that are no numbers.
        """
        kernels = options.kernels or _native.kernel_sets()[0]
        try:
            native = _create(config, options, kernels)
            fill(native, weights, config, progress or _silent, fine=options.fine)
        except ValueError as error:
            raise StartupError(
                f"The CPU engine cannot run this model with the kernel set {kernels!r}: {error}. "
                f"This processor allows: {', '.join(_native.kernel_sets())}."
            ) from None
        except (RuntimeError, MemoryError):
            raise _no_memory(options) from None
        pinning, memory = _pin(native, options.cores), f"{native.bytes >> 20} MB of memory, taken at start"
        info = EngineInfo(
            engine="native",
            kernels=kernels,
            weights="exact" if options.exact else "int8",
            threads=options.threads,
            slots=options.slots,
            slot_tokens=options.slot_tokens,
            chunk_tokens=options.chunk_tokens,
            vocabulary=config.vocabulary,
            memory_bytes=native.bytes,
            rings=True,
            notes=(*options.notes, *pinning, memory, page_note(native.bytes)),
        )
        kept = PrefixCache(
            entries=options.prefixes, entry_tokens=options.prefix_tokens, salt_share=options.salt_share
        )
        return cls(native, info, options.stop_ids, kept)

    def describe(self) -> EngineInfo:
        return self._info

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights that a decode step reads."""
        return self._live.weight_bytes

    def read_once_ns(self, slots: int, tokens: int) -> int:
        """Time to read once, with no arithmetic, what a step of ``slots`` slots with ``tokens`` of context reads."""
        return self._live.read_once(slots, tokens)

    def spin_ns(self, turns: int) -> int:
        """Time of ``turns`` of a loop that touches no memory, on the threads of a step."""
        return self._live.spin(turns)

    def products_ns(self, turns: int) -> int:
        """Time of ``turns`` of a step's own products on a few weights that stay in the cache, on the threads of a step.

        Nothing is waited for but the processor's multipliers: what this varies by, they are shared with others by.
        """
        return self._live.products(turns)

    @property
    def computed_ns(self) -> int:
        """When the last step had computed, on the monotonic clock: since then it waited for the interpreter."""
        return self._live.ended_ns

    def open(self, slot: int, generation: Generation) -> None:
        self._begin(slot, generation)

    def _begin(self, slot: int, generation: Generation, *, constant: bool = False) -> None:
        """``constant``: what is kept of the prompt is everybody's, and never leaves."""
        sampling, prompt = generation.sampling, array(_INT32, generation.prompt)
        seed = int.from_bytes(os.urandom(8)) if sampling.seed is None else sampling.seed & _SEED_MASK
        scored = generation.prompt_logprobs
        whole = generation.whole or scored is not None
        hit = None if whole else self._prefixes.attach(prompt, generation.salt)
        try:
            self._live.open(
                slot,
                prompt,
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
                [] if generation.ignore_eos and generation.grammar is None else self._stop_ids,
                sampling.min_tokens,
                sampling.logit_bias,
                -1 if scored is None else scored,
                hit.entry if hit else 0,
                hit.tokens if hit else 0,
                generation.grammar is not None,
            )
        except ValueError as error:
            if hit:
                self._prefixes.detach(hit)
            raise EngineFailed(f"The engine refused a generation: {error}.") from None
        keeps = self._prefixes.keeps(len(prompt)) if generation.keep else 0
        self._open[slot] = _Open(generation, prompt, hit, keeps, constant)
        if generation.grammar is not None:
            self._masks.open(slot, generation.grammar)
        if scored is not None:
            self._scores[slot] = []

    def prefill_left(self, slot: int) -> int:
        return self._live.prefill_left(slot)

    def step(self, plan: StepPlan) -> list[SampledToken]:
        masks = self._masks
        if masks.used:
            masks.fill(self._rows_to_sample(plan))
        keep = self._to_keep(plan) if plan.prefill_slot >= 0 else None
        entry, kept = (0, 0) if keep is None else (keep.entry, keep.tokens)
        try:
            tokens = self._live.step(
                self._tokens, plan.decode, plan.prefill_slot, plan.prefill_tokens, plan.bell, entry, kept
            )
        except ValueError as error:
            if keep is not None:
                self._prefixes.forget(keep)
            raise EngineFailed(f"The engine refused a step: {error}.") from None
        scores = self._scores.get(plan.prefill_slot) if self._scores else None
        if scores is not None:
            self._score(plan.prefill_slot, scores, tokens)
        return masks.advance(tokens) if masks.used else tokens

    def _score(self, slot: int, scores: list[TokenLogprob], tokens: list[SampledToken]) -> None:
        """Take the scores of a chunk; with the last one they all leave, beside the first token of the answer."""
        prompt = self._open[slot].prompt
        for logprob in self._live.scored():
            scores.append(_logprob(prompt[len(scores) + 1], logprob))
        if tokens and tokens[-1].slot == slot:
            tokens[-1] = msgspec.structs.replace(tokens[-1], prompt=tuple(scores))

    def close(self, slot: int) -> None:
        self._live.close(slot)
        self._masks.close(slot)
        self._scores.pop(slot, None)
        closed = self._open.pop(slot, None)
        if closed is not None and closed.hit is not None:
            self._prefixes.detach(closed.hit)

    def _to_keep(self, plan: StepPlan) -> Hit | None:
        """Where this step is to write the beginning of the prompt that it reads, if it is the one that completes it."""
        opened = self._open.get(plan.prefill_slot)
        if opened is None or not opened.keeps:
            return None
        read = len(opened.prompt) - self._live.prefill_left(plan.prefill_slot) + plan.prefill_tokens
        if read < opened.keeps:
            return None
        opened.keeps = 0
        return self._prefixes.admit(opened.prompt, opened.generation.salt, constant=opened.constant)

    def _rows_to_sample(self, plan: StepPlan) -> Sequence[int]:
        slot = plan.prefill_slot
        if slot >= 0 and self._live.prefill_left(slot) == plan.prefill_tokens:
            return (*plan.decode, slot)
        return plan.decode

    def keep_constant(self, token_ids: Sequence[int], turn: Turn = ALONE) -> None:
        """Compute a beginning that many prompts share, whole blocks of it, and never let it leave. Before the start.

        Each step is run within ``turn``. What no prompt can have, as it is longer than a slot, is left out.
        """
        slot = self._info.slots  # the service slot
        token_ids = token_ids[: self._info.slot_tokens - 1]
        if len(token_ids) < BLOCK:
            return
        self._begin(slot, Generation(token_ids, Sampling(temperature=0.0), 1, ignore_eos=True), constant=True)
        self._prefill(slot, turn)
        self.close(slot)

    def keep_prefix(self, prefix: Kept, turn: Turn = ALONE) -> None:
        """Compute a prefix that an earlier run kept, while there are free entries. Before the start."""
        slot = self._info.slots
        if self._prefixes.free and BLOCK <= len(prefix.token_ids) < self._info.slot_tokens:
            self.open(slot, Generation(prefix.token_ids, Sampling(temperature=0.0), 1, salt=prefix.salt))
            self._prefill(slot, turn)
            self.close(slot)

    def kept_prefixes(self) -> list[Kept]:
        """What ``keep_prefix`` of a later run is for, best first. When no step runs."""
        return self._prefixes.kept()

    @property
    def resting(self) -> int:
        return 0 if self._engine is None else self._info.threads - self._engine.threads_now

    @property
    def crowded(self) -> bool:
        return self._engine is not None and self._engine.crowded

    @property
    def cores_had(self) -> float:
        return 0.0 if self._engine is None else self._engine.cores_now

    def shutdown(self) -> None:
        self._engine = None  # its threads end and its memory goes with it

    def _prefill(self, slot: int, turn: Turn) -> None:
        while left := self.prefill_left(slot):
            with turn:
                self.step(StepPlan((), slot, min(left, self._info.chunk_tokens)))

    @property
    def _live(self) -> _native.Engine:
        if self._engine is None:
            raise EngineFailed("The engine is shut down.")
        return self._engine

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Teacher-forced logits [len(token_ids), vocabulary], through the service slot."""
        import numpy as np  # for those who study a model: a server starts without it

        out = np.empty((len(token_ids), self._info.vocabulary), dtype=np.float32)
        self._live.logits(array(_INT32, token_ids), out)
        return out


def _pin(native: _native.Engine, cores: Sequence[int]) -> tuple[str, ...]:
    """What to tell of it: nothing where the system allowed it."""
    refused = native.pin(cores) if cores else 0
    return (pinning_refused(refused),) if refused else ()


def _no_memory(options: EngineOptions) -> StartupError:
    return StartupError(
        f"There is no memory for {options.slots} slots of {options.slot_tokens} tokens. Use fewer (--slots) or shorter "
        "(--slot-tokens) slots."
    )


def needed_bytes(config: ModelConfig, embedding_bytes: int, options: EngineOptions) -> int:
    """What ``load`` takes, within a few per cent: a byte a weight, the embedding as in the file, and KV."""
    attention = config.hidden * config.head_dim * (2 * config.heads + 2 * config.kv_heads)
    per_layer = attention + 3 * config.hidden * config.intermediate
    outputs = config.layers * (config.head_dim * (config.heads + 2 * config.kv_heads) + config.hidden)
    fine = _native.FINE_INPUTS * (outputs + config.vocabulary)
    weights = config.layers * per_layer + config.vocabulary * config.hidden + fine + embedding_bytes
    kv_token = config.layers * config.kv_heads * (3 * config.head_dim + 8)  # 2 bytes a key, 1 a value, two scales
    row = 16 * (config.hidden + config.intermediate) + 4 * config.head_dim * (config.heads + 2 * config.kv_heads)
    tokens = (options.slots + 1) * options.slot_tokens + options.prefixes * options.prefix_tokens
    rows = options.slots + options.chunk_tokens
    return weights + tokens * kv_token + options.slots * 6 * config.vocabulary + rows * row


def _logprob(token_id: int, logprob: tuple[float, list[tuple[int, float]]]) -> TokenLogprob:
    # A list first: the tuple is then made at its size, and the next one reuses its memory.
    return TokenLogprob(token_id, logprob[0], tuple([Alternative(other, value) for other, value in logprob[1]]))


def _create(config: ModelConfig, options: EngineOptions, kernels: str) -> _native.Engine:
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
        slots=options.slots + 1,  # one of our own: for constants, logits and heartbeats
        slot_tokens=options.slot_tokens,
        chunk_tokens=options.chunk_tokens,
        threads=options.threads,
        prefixes=options.prefixes,
        prefix_tokens=options.prefix_tokens,
        exact=options.exact,
        bloom=options.bloom,
        kernels=kernels,
    )


def _silent(_what: str, _done: int, _of: int) -> None:
    pass
