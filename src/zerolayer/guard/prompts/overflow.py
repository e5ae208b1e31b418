"""Makes a conversation fit a slot, where the contract allows it: older turns are left out, repeated ones said once.

A turn is a user's message with everything up to the next one. Pure: messages in, messages or ids out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

import msgspec

from zerolayer.wire.schema import Message

MARKER = "[TRUNCATED]"
"""The line that the first kept message begins with where older ones are missing."""


class Cut(msgspec.Struct, frozen=True):
    """Token ids of what was kept, and how many messages were not."""

    ids: list[int]
    dropped: int


def newest_turns(
    messages: Sequence[Message], encode: Callable[[Sequence[Message]], list[int]], most_tokens: int
) -> Cut | None:
    """The leading system messages and as many of the newest turns as fit ``most_tokens``; None if not even one does.

    Encodes a logarithmic number of conversations, as fewer turns have fewer tokens.
    """
    system = list(takewhile(lambda message: message.role == "system", messages))
    first = len(system)
    starts = [at for at in range(first + 1, len(messages)) if messages[at].role == "user"]
    fitting: Cut | None = None
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        start = starts[middle]
        ids = encode([*system, _marked(messages[start]), *messages[start + 1 :]])
        if len(ids) <= most_tokens:
            fitting, high = Cut(ids, start - first), middle
        else:
            low = middle + 1
    return fitting


def without_repeats(messages: Sequence[Message]) -> list[Message]:
    """Without user messages that say again, word by word, what the user's message right before them says."""
    kept: list[Message] = []
    for message in messages:
        if message.role != "user" or not kept or kept[-1] != message:
            kept.append(message)
    return kept


def _marked(message: Message) -> Message:
    return Message(message.role, f"{MARKER}\n{message.content}")
