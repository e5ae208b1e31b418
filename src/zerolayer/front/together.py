"""The budget of a request with several answers: settled once, with what all of them used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zerolayer.guard.budget.budgets import Hold
from zerolayer.guard.spent import Spent


class Answering(Protocol):
    """One answer that runs."""

    def spent(self) -> Spent:
        """What ran so far."""


class Together:
    """Stands in each answer for the hold of all. ``per_prompt`` answers share a prompt, which is counted once."""

    def __init__(self, hold: Hold, answers: int, per_prompt: int) -> None:
        self._hold = hold
        self._left = answers
        self._per_prompt = per_prompt
        self.works: Sequence[Answering] = ()

    def settle(self, _spent: Spent) -> None:
        """One answer has ended; with the last one all is settled."""
        self._left -= 1
        if not self._left:
            self.end()

    def end(self) -> None:
        """The reply has ended, whatever still ran. Only the first call counts."""
        total = Spent()
        for place, work in enumerate(self.works):
            spent = work.spent()
            first = place % self._per_prompt == 0
            total = Spent(
                total.prompt_tokens + (spent.prompt_tokens if first else 0),
                total.output_tokens + spent.output_tokens,
                total.cached_tokens + (spent.cached_tokens if first else 0),
                total.compute_us + spent.compute_us,
            )
        self._hold.settle(total)
