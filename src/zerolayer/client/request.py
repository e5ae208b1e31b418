"""What a caller asks, whatever protocol carries it, and what of a prompt names the node that may have it in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

PREFIX_CHARACTERS: Final = 512
TYPED_CHARACTERS: Final = 32  # of the first message of a user: what it begins with while it is still being typed


@dataclass(frozen=True)
class Options:
    """How to answer; None means not said. ``fills_cache``: no answer is wanted, only a warm prefix."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    fills_cache: bool = False


@dataclass(frozen=True)
class Question:
    """A chat (``messages``, each with ``role`` and ``content``), or plain text to be continued (``prompt``)."""

    options: Options
    messages: Sequence[Mapping[str, str]] = ()
    prompt: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> bytes:
        """A digest of the beginning. Of a chat: up to how the user's first message begins, which later turns keep."""
        if self.prompt is not None:
            return _digest(self.prompt[:PREFIX_CHARACTERS])
        turns = self.messages
        first = next((place for place, turn in enumerate(turns) if turn.get("role") == "user"), len(turns))
        before = [str(turn.get("content", ""))[:PREFIX_CHARACTERS] for turn in turns[:first]]
        typed = [str(turn.get("content", ""))[:TYPED_CHARACTERS] for turn in turns[first : first + 1]]
        return _digest("\0".join(before + typed))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
