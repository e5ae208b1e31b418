"""How much one request may ask for, whichever body carries it."""

from __future__ import annotations

from typing import Literal

import msgspec


class BodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The contract's section ``limits``, as far as bodies are concerned.

    ``outside="clamp"`` moves ``temperature`` and ``max_tokens`` to the nearest limit instead of refusing them.
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
