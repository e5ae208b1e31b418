"""What every engine is to the step clock: slots that are opened, stepped and closed.

Two engines exist: ``NativeEngine`` (``native_engine.py``, the CPU kernels) and ``MockEngine`` (``mock_engine.py``,
which sleeps). All methods are called by the step thread only, except ``describe``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import msgspec

from zerolayer.text.grammar import Grammar
from zerolayer.wire.schema import FinishReason, Sampling, TokenLogprob


class Generation(msgspec.Struct, frozen=True):
    """What a slot is asked to do. ``len(prompt) + max_tokens`` is at most ``slot_tokens`` (the guard's promise)."""

    prompt: Sequence[int]
    sampling: Sampling
    max_tokens: int
    ignore_eos: bool = False
    salt: bytes = b""  # prompts of one salt may share what was computed for another of the same salt
    keep: bool = True  # whether a prefix of the prompt may be kept for the next one
    whole: bool = False  # whether all of the prompt is computed, though a prefix of it may be kept already
    grammar: Grammar | None = None  # what the answer is held to; it ends with an end-of-sequence token in any case
    prompt_logprobs: int | None = None  # alternatives to report for each token of the prompt; None: no report


class Broken(Enum):
    """Why an answer ends before its end: the token that tells of it means nothing."""

    GRAMMAR = "grammar"  # it cannot be held to its grammar any longer
    NUMBERS = "numbers"  # the model's logits are no finite numbers


class SampledToken(msgspec.Struct, frozen=True, gc=False):
    """One token that a step chose for one slot. ``finish`` is set on the last token of a generation.

    A token with ``finish=STOP`` is an end-of-sequence token: it is counted, never shown. The first token of a
    generation that asked for ``prompt_logprobs`` brings them, from the prompt's second token on. ``broken``: the answer
    ends here without being one.
    """

    slot: int
    token_id: int
    finish: FinishReason | None = None
    logprob: TokenLogprob | None = None
    broken: Broken | None = None
    prompt: tuple[TokenLogprob, ...] = ()


def chunk_of(chunk_tokens: int, *, scored: bool) -> int:
    """Prompt tokens that one step takes. Each token of a prompt that is scored costs the logits of a row besides."""
    return max(1, chunk_tokens // 4) if scored else chunk_tokens


class StepPlan(msgspec.Struct, frozen=True):
    """One step: a decode row for each slot of ``decode``, and at most one chunk of one slot's prompt.

    ``prefill_slot`` -1: no chunk. ``bell`` is an eventfd to which the engine writes as soon as it has let go of the
    interpreter, -1 for none; only an engine that ``rings`` is given one.
    """

    decode: Sequence[int]
    prefill_slot: int = -1
    prefill_tokens: int = 0
    bell: int = -1


class EngineInfo(msgspec.Struct, frozen=True):
    """What people are told about an engine at start and in ``/v1/models``."""

    engine: str
    kernels: str
    weights: str
    threads: int
    slots: int
    slot_tokens: int
    chunk_tokens: int
    vocabulary: int
    memory_bytes: int = 0  # taken at start, and nothing afterwards
    notes: tuple[str, ...] = ()  # what the system allowed: huge pages, quota, affinity
    rings: bool = False  # a step rings the bell of its plan


class Engine(Protocol):
    """A model in slots."""

    def describe(self) -> EngineInfo:
        """Constant after start; any thread."""

    def open(self, slot: int, generation: Generation) -> None:
        """Give a free slot its work; computes nothing yet. May attach it to a kept prefix of its prompt."""

    def prefill_left(self, slot: int) -> int:
        """Prompt tokens of ``slot`` that no step has processed yet."""

    def step(self, plan: StepPlan) -> list[SampledToken]:
        """Run one step; releases the GIL while it computes.

        Returns a token for every decode slot, and for the prefill slot when its prompt is complete. May keep a prefix
        of the prompt as soon as it is computed. Raises ``EngineFailed``.
        """

    def close(self, slot: int) -> None:
        """Forget what the slot held. Idempotent."""

    @property
    def resting(self) -> int:
        """Threads that steps do without at present: other programs have cores, and fewer get more done. Any thread."""

    @property
    def crowded(self) -> bool:
        """Whether other programs run on the cores of the threads, so that these sleep for each other. Any thread."""

    @property
    def cores_had(self) -> float:
        """Cores that the working threads had together while steps ran, of late; 0: not known. Any thread."""

    def shutdown(self) -> None:
        """Stop worker threads and give memory back. Idempotent."""
