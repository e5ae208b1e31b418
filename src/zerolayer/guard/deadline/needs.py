"""What a request needs of the engine, at the prices of now: steps, and the time of its chunks. Pure."""

from __future__ import annotations

from typing import Final

from zerolayer.guard.deadline.booking import Work
from zerolayer.model.cost import CostTable, Prices
from zerolayer.model.engine import chunk_of

_LENGTHS: Final = 256  # that are remembered
_TOLD: Final = 0.8  # of the deadline: how much of it a default number of tokens may fill


class Needs:
    """Of an engine whose prompts are read in chunks of ``chunk_tokens``."""

    def __init__(self, cost: CostTable, chunk_tokens: int) -> None:
        self._cost = cost
        self._chunk_tokens = chunk_tokens
        self._priced: Prices | None = None
        self._works: dict[tuple[int, int], Work] = {}  # at those prices: of those who come at once many are as long

    def work(self, prompt_tokens: int, max_tokens: int, *, scored: bool = False) -> Work:
        """What so many tokens need; ``scored``: each token of the prompt, too."""
        return (self.scored if scored else self.plain)(self._cost.prices(), prompt_tokens, max_tokens)

    def scored(self, prices: Prices, prompt_tokens: int, max_tokens: int) -> Work:
        """In more and shorter chunks."""
        each_ns = int(prices.chunk_ns[-1] * self._cost.scored_share)
        chunks = -(-prompt_tokens // chunk_of(self._chunk_tokens, scored=True))
        return Work(chunks, chunks * each_ns, each_ns, max_tokens)

    def plain(self, prices: Prices, prompt_tokens: int, max_tokens: int) -> Work:
        """In whole chunks, and the rest."""
        if prices is not self._priced or len(self._works) >= _LENGTHS:
            self._priced, self._works = prices, {}
        lengths = (prompt_tokens, max_tokens)
        work = self._works.get(lengths)
        if work is None:
            full_ns = prices.chunk_ns[-1]
            full, rest = divmod(prompt_tokens, self._chunk_tokens)
            chunk_ns = full * full_ns + (prices.chunk(rest) if rest else 0)
            work = self._works[lengths] = Work(full + (rest > 0), chunk_ns, full_ns, max_tokens)
        return work

    def within(self, end_ns: int, prompt_tokens: int, wished: int) -> int:
        """As many of the ``wished`` tokens as a deadline of ``end_ns`` allows, at least 1."""
        prices, work = self._cost.prices(), self.work(prompt_tokens, wished)
        allowed = int(end_ns * _TOLD)
        if work.need_ns(prices) <= allowed:
            return wished
        return max(1, min(wished, (allowed - work.first_ns(prices)) // max(1, prices.step_ns) + 1))
