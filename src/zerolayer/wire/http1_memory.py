"""Heads that came to one listener, so that not even the first one of a connection need be parsed.

A head is found by all its bytes, or by all of them but for values that decide nothing (``head_template``): what is
found is what parsing would give, whoever sent it first. What one connection can put here is little, so that a client
that sends something new each time takes the memory from nobody; what connections remember for themselves comes first.
What lets somebody in is not kept here, where it would outlive the connection that brought it.
"""

from __future__ import annotations

from typing import Final

from zerolayer.wire.head_template import SECRET
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http1_template import Habits

OF_ONE_CONNECTION: Final = 2  # heads that it may put here: two that differ in values make a template
_HEADS: Final = 64
_TEMPLATES: Final = 16


class HeadMemory:
    """Of all connections of one listener, whose limits are the same. The oldest is forgotten first."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self._habits = Habits(_TEMPLATES, SECRET)

    def head(self, raw: bytes) -> Head | None:
        """The head that ``raw`` is, if one like it came before."""
        return self._heads.get(raw) or self._habits.head(raw)

    def learn(self, raw: bytes, head: Head) -> None:
        """A head was parsed from its first byte."""
        self._habits.learn(raw, head)
        if not SECRET.isdisjoint(head.values):
            return
        if len(self._heads) >= _HEADS:
            del self._heads[next(iter(self._heads))]
        self._heads[raw] = head
