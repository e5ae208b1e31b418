"""What the guard knows of the model that it guards: its names and its numbers."""

from __future__ import annotations

import msgspec


class Names(msgspec.Struct, frozen=True):
    """What ``model`` may say: the served name, or one of ``aliases`` (``*`` = anything)."""

    served: str
    aliases: frozenset[str] = frozenset()

    def known(self, name: str) -> bool:
        """Whether a request may call the model so."""
        return name == self.served or name in self.aliases or "*" in self.aliases

    def listed(self) -> tuple[str, ...]:
        """The names that ``GET /v1/models`` shows, the served one first."""
        return (self.served, *sorted(self.aliases - {"*", self.served}))


class Shape(msgspec.Struct, frozen=True):
    """The numbers the decisions rest on, constant after start. Lengths in tokens."""

    slot_tokens: int
    default_max_tokens: int
    vocabulary: int
    longest_piece_bytes: int
    template_tokens: int  # upper bound of what the chat template adds around one message
    bos_id: int | None = None
    add_bos: bool = False  # a bare text prompt begins with bos_id
    truncate: bool = False  # a conversation that is too long loses its oldest turns
    drop_duplicates: bool = False  # and user messages that repeat the one before them
