"""How much one request may ask for, whichever body carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

Number = TypeVar("Number", int, float)


def _tell_nobody(limit: str) -> None:
    """Nobody counts."""


class BodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The contract's section ``limits``, as far as bodies are concerned.

    ``outside="clamp"`` moves ``temperature`` and ``max_tokens`` to the nearest limit instead of refusing them, and
    ``clamped`` is told of each that was moved.
    """

    body_bytes: int = 1_048_576
    json_messages: int = 1024
    max_tokens: int = 2048
    temperature: tuple[float, float] = (0.0, 2.0)
    stop: int = 4
    stop_chars: int = 1024
    n: int = 4
    top_logprobs: int = 20
    tools: int = 128
    schema_bytes: int = 65_536  # of all JSON schemas of one request together
    outside: Literal["refuse", "clamp"] = "refuse"
    clamped: Callable[[str], None] = _tell_nobody

    def moved(self, limit: str, given: Number, low: Number, high: Number) -> Number:
        """``given``, or the nearest of the bounds of ``limit``."""
        nearest = min(max(given, low), high)
        if nearest != given:
            self.clamped(limit)
        return nearest
