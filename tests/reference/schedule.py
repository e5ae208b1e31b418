"""Drives an engine step by step in any order, without the step clock: which rows share a step is the test's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from zerolayer.model.engine import Engine, Generation, SampledToken, StepPlan

MAX_STEPS = 100_000


@dataclass
class Run:
    """Generations in slots. ``tokens[slot]`` grows by one token for every row that yields one."""

    engine: Engine
    tokens: dict[int, list[SampledToken]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def admit(self, slot: int, generation: Generation) -> None:
        """Open ``slot``; its earlier tokens are forgotten."""
        self.engine.open(slot, generation)
        self.tokens[slot] = []
        self.open.add(slot)

    def decoding(self) -> list[int]:
        """Open slots whose prompt is complete."""
        return [slot for slot in sorted(self.open) if self.engine.prefill_left(slot) == 0]

    def prefilling(self) -> list[int]:
        """Open slots with prompt tokens left."""
        return [slot for slot in sorted(self.open) if self.engine.prefill_left(slot) > 0]

    def step(self, plan: StepPlan) -> list[SampledToken]:
        """One step; finished slots are closed."""
        sampled = self.engine.step(plan)
        for token in sampled:
            self.tokens[token.slot].append(token)
            if token.finish is not None:
                self.drop(token.slot)
        return sampled

    def drop(self, slot: int) -> None:
        """Close ``slot``, finished or not."""
        self.engine.close(slot)
        self.open.discard(slot)

    def to_the_end(self, chunk: Callable[[int], int] = lambda left: 16) -> None:
        """Step until all is finished: every decode row, and ``chunk(left)`` tokens of the first open prompt."""
        for _ in range(MAX_STEPS):
            if not self.open:
                return
            prefill = self.prefilling()
            slot = prefill[0] if prefill else -1
            left = self.engine.prefill_left(slot) if prefill else 0
            self.step(StepPlan(self.decoding(), slot, min(left, chunk(left)) if prefill else 0))
        raise AssertionError(f"not finished after {MAX_STEPS} steps")


def alone(engine: Engine, generation: Generation, slot: int = 0, chunk: int = 16) -> list[SampledToken]:
    """The whole generation with nothing else in the engine; ``slot`` of every token is 0, so that runs compare."""
    return together(engine, {slot: generation}, chunk)[slot]


def together(engine: Engine, generations: Mapping[int, Generation], chunk: int = 16) -> dict[int, list[SampledToken]]:
    """All generations at once, by slot; ``slot`` of every token is set to 0, so that runs compare."""
    run = Run(engine)
    for slot, generation in generations.items():
        run.admit(slot, generation)
    run.to_the_end(lambda left: chunk)
    return {slot: slotless(tokens) for slot, tokens in run.tokens.items()}


def slotless(tokens: list[SampledToken]) -> list[SampledToken]:
    """The same tokens as if slot 0 had produced them."""
    return [msgspec.structs.replace(token, slot=0) for token in tokens]
