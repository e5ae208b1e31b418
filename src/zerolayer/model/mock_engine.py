"""An engine that sleeps: fixed step time, deterministic tokens, the same slots and cost interface as the real one.

For benches of the front end and for tests. The tokens of a generation depend on its prompt, seed and position only.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import msgspec

from zerolayer.errors import EngineFailed
from zerolayer.model.engine import EngineInfo, Generation, SampledToken, StepPlan
from zerolayer.model.masks import Masks
from zerolayer.wire.schema import Alternative, FinishReason, TokenLogprob

_MIX = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the increment of SplitMix64
_MASK = (1 << 64) - 1


class _Slot(msgspec.Struct):
    generation: Generation
    key: int
    prefilled: int = 0
    produced: int = 0


class MockEngine:
    """``step_us`` microseconds a step, whatever its rows. ``eos_id`` (-1: none) ends a generation when it comes up.

    An answer that is held to a grammar is one that it allows; of the tokens that it allows, ``endings`` come up often,
    so that texts and lists end. ``stop_ids`` end it.
    """

    def __init__(
        self,
        *,
        slots: int,
        slot_tokens: int,
        chunk_tokens: int,
        step_us: int,
        vocabulary: int,
        eos_id: int = -1,
        reserved_ids: Iterable[int] = (),
        stop_ids: Iterable[int] = (),
        endings: Sequence[int] = (),
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._info = EngineInfo(
            engine=f"mock:step_us={step_us}",
            kernels="none",
            weights="none",
            threads=1,
            slots=slots,
            slot_tokens=slot_tokens,
            chunk_tokens=chunk_tokens,
            vocabulary=vocabulary,
            notes=("the mock engine computes nothing: its tokens are arbitrary",),
        )
        self._eos_id = eos_id
        self._reserved = frozenset(reserved_ids)  # ids that are never chosen: special tokens have no text
        self._step_s = step_us / 1e6
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._slots: dict[int, _Slot] = {}
        self._stop_ids = frozenset(stop_ids)
        self._endings = tuple(endings)
        self._row_words = (vocabulary + 31) // 32
        self._rows = (ctypes.c_uint32 * (self._row_words * (slots + 1)))()
        self._masks = Masks(ctypes.addressof(self._rows), self._row_words * 4, slots + 1, 1)

    def describe(self) -> EngineInfo:
        return self._info

    def open(self, slot: int, generation: Generation) -> None:
        if slot in self._slots:
            raise EngineFailed(f"slot {slot} is already open")
        key = generation.sampling.seed or 0
        for token_id in generation.prompt:
            key = _mix(key ^ (token_id + 1))
        self._slots[slot] = _Slot(generation, key)
        if generation.grammar is not None:
            self._masks.open(slot, generation.grammar)

    def prefill_left(self, slot: int) -> int:
        state = self._slots[slot]
        return len(state.generation.prompt) - state.prefilled

    def step(self, plan: StepPlan) -> list[SampledToken]:
        self._sleep(self._step_s)
        masks = self._masks
        if masks.used:
            masks.fill((*plan.decode, plan.prefill_slot))
        sampled = [self._sample(slot) for slot in plan.decode]
        if plan.prefill_slot >= 0:
            state = self._slots[plan.prefill_slot]
            state.prefilled += plan.prefill_tokens
            if state.prefilled == len(state.generation.prompt):
                sampled.append(self._scored(state.generation, self._sample(plan.prefill_slot)))
        return masks.advance(sampled) if masks.used else sampled

    def close(self, slot: int) -> None:
        self._slots.pop(slot, None)
        self._masks.close(slot)

    @property
    def resting(self) -> int:
        return 0

    @property
    def crowded(self) -> bool:
        return False

    @property
    def cores_had(self) -> float:
        return 0.0

    def shutdown(self) -> None:
        self._stopping.set()

    def _sample(self, slot: int) -> SampledToken:
        state = self._slots[slot]
        held = state.generation.grammar is not None
        token_id = self._allowed(slot, state) if held else self._token(state.key, state.produced)
        state.produced += 1
        finish = None
        may_stop = state.produced > state.generation.sampling.min_tokens and not state.generation.ignore_eos
        if token_id in self._stop_ids if held else token_id == self._eos_id and may_stop:
            finish = FinishReason.STOP
        elif state.produced >= state.generation.max_tokens:
            finish = FinishReason.LENGTH
        top = state.generation.sampling.top_logprobs
        return SampledToken(slot, token_id, finish, None if top is None else self._logprob(token_id, top))

    def _scored(self, generation: Generation, token: SampledToken) -> SampledToken:
        if generation.prompt_logprobs is None:
            return token
        scores = [self._logprob(token_id, generation.prompt_logprobs) for token_id in generation.prompt[1:]]
        return msgspec.structs.replace(token, prompt=tuple(scores))

    def _logprob(self, token_id: int, top: int) -> TokenLogprob:
        alternatives = tuple(Alternative((token_id + i) % self._info.vocabulary, -0.5 - i) for i in range(top))
        return TokenLogprob(token_id, -0.5, alternatives)

    def _allowed(self, slot: int, state: _Slot) -> int:
        """One of the tokens that the grammar allows now; every second time an ending, if it allows one."""
        words: list[int] = self._rows[slot * self._row_words : (slot + 1) * self._row_words]
        drawn = _mix(state.key + state.produced * _MIX)
        ends: list[int] = [token_id for token_id in self._endings if words[token_id // 32] >> (token_id % 32) & 1]
        if ends and drawn & 1:
            return ends[(drawn >> 8) % len(ends)]
        start = (drawn >> 1) % self._row_words
        for at in chain(range(start, self._row_words), range(start)):
            if words[at]:
                allowed = [bit for bit in range(32) if words[at] >> bit & 1]
                return at * 32 + allowed[(drawn >> 32) % len(allowed)]
        return 0

    def _token(self, key: int, position: int) -> int:
        token_id = _mix(key + position * _MIX) % self._info.vocabulary
        while token_id in self._reserved:
            token_id = (token_id + 1) % self._info.vocabulary
        return token_id


def _mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
