"""What one request used of the engine: what budgets are settled with, and what the ledger records."""

from __future__ import annotations

import msgspec


class Spent(msgspec.Struct, frozen=True):
    """Counts of what ran. Of a request that was cut, ``prompt_tokens`` are only those that were read until then.

    ``cached_tokens`` are part of ``prompt_tokens``. ``compute_us`` is the request's share of its steps, in wall
    microseconds times the engine's cores.
    """

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    compute_us: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and answer together, as limits count them."""
        return self.prompt_tokens + self.output_tokens


NOTHING = Spent()
