"""What the text of a request became."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zerolayer.text.grammar import Grammar


class Prompt(msgspec.Struct, frozen=True):
    """What a request's text became, how many of its messages are not in it, and what its answer is held to."""

    ids: Sequence[int]
    truncated: int = 0
    duplicates: int = 0
    grammar: Grammar | None = None
