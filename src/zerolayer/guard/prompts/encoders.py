"""What the guard needs of the text room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zerolayer.text.grammar import Grammar
from zerolayer.wire.schema import Message, Request, Tool


class TextEncoder(Protocol):
    """Plain text to token ids."""

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; never a special token."""


class MessageEncoder(Protocol):
    """The chat template."""

    def encode(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Token ids of a conversation, up to the place where the assistant speaks."""


class GrammarCompiler(Protocol):
    """Grammars of answers."""

    def slow(self, request: Request) -> bool:
        """Whether ``of`` would take its time."""

    def of(self, request: Request) -> Grammar | None:
        """What the answer is held to; None for free text."""
