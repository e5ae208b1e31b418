"""Conversations that a compiled chat template is proven on before it serves.

Contents are chosen to break what could break: tokens that merge across a border, white space that is trimmed, names of
control tokens, and every text that the template itself compares with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product

from zerolayer.wire.schema import Message

_CONTENTS = (
    "",
    "Hello",
    " ",
    "\n",
    "\n\nafter two newlines",
    " leading space",
    "trailing space ",
    "\t\r\n both \n\n",
    "1",
    "2024 years",
    "\u00e9t\u00e9 \u65e5\u672c \U0001f600",
    "e\u0301 combining \u200d",
    "'s what?",
    "<",
    "|>",
    "x</think>y",
    "{{ 7 * 7 }}{% raw %}",
)
_MAX_NAMES = 8
_MAX_LITERALS = 24


def probe_contents(literals: Sequence[str], names: Sequence[str]) -> list[str]:
    """Contents to probe with: ours, names of control tokens, and the template's own literals inside other text."""
    named = [f"a{name}b" for name in names[:_MAX_NAMES]] + list(names[:_MAX_NAMES])
    quoted = [f"a{literal}b" for literal in literals[:_MAX_LITERALS]]
    return [*_CONTENTS, *named, *quoted]


def conversations(roles: Sequence[str], contents: Sequence[str]) -> Iterator[list[Message]]:
    """Every order of up to three roles; every content in every place of the usual orders; some long ones."""
    turn = cycle(contents)
    for length in (1, 2, 3):
        for order in product(roles, repeat=length):
            yield [Message(role, next(turn)) for role in order]
    usual = (("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user"))
    tool = (("user", "assistant", "tool"), ("user", "assistant", "tool", "tool", "assistant", "user"))
    for content in contents:
        for order in (*usual, *tool) if "tool" in roles else usual:
            yield [Message(role, content) for role in order]
    for start in ((), ("system",)):
        for turns in range(2, 7):
            order = (*start, *("user", "assistant") * turns, "user")
            yield [Message(role, next(turn)) for role in order]
            yield [Message(role, next(turn)) for role in (*order, "user")]
            yield [Message(role, next(turn)) for role in (*order, "system", "user")]
