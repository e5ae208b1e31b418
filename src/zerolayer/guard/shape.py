"""What the guard knows of the model that it guards: its names, its numbers, and who turns text into tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from zerolayer.wire.schema import Message


class TextEncoder(Protocol):
    """What the guard needs of ``text``'s encoder."""

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; never a special token."""


class MessageEncoder(Protocol):
    """What the guard needs of ``text``'s chat template."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation, up to the place where the assistant speaks."""


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
