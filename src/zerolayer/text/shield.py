"""Keeps names of control tokens in people's texts from being read as control tokens.

While a template is rendered, its own text and people's texts become one string. Before, each name of a control token in
a content, and each part of one at the content's ends, is broken by a mark, a character that occurs nowhere else; the
rendering is cut at the names that are whole, and the marks are taken out again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

_MARKS = range(0xF0000, 0xFFFFE)  # supplementary private-use area A: no text is expected there


class Shield:
    """Knows the control tokens. Names of one character cannot be broken, so they are never read as control tokens."""

    def __init__(self, special_ids: Mapping[str, int]) -> None:
        self._ids = {name: token for name, token in special_ids.items() if len(name) > 1}
        # Longest first: at one place the longest name counts, as in Hugging Face's tokenizers.
        names = "|".join(re.escape(name) for name in sorted(self._ids, key=len, reverse=True)) or r"(?!)"
        self._cut = re.compile(f"({names})")
        self._inside = re.compile(f"(?={names})")
        self._heads = frozenset(name[:length] for name in self._ids for length in range(1, len(name)))
        self._tails = frozenset(name[-length:] for name in self._ids for length in range(1, len(name)))
        self._longest = max(map(len, self._ids), default=0)

    @staticmethod
    def mark(texts: Iterable[str]) -> str:
        """A character that occurs in none of ``texts``."""
        used = set("".join(texts))
        return next(chr(code) for code in _MARKS if chr(code) not in used)

    def guard(self, content: str, mark: str) -> str:
        """``content`` with a mark inside every name, also in those that the template's own text could complete.

        A mark never stands at an end, where a template that trims white space would stop at it.
        """
        breaks = {found.start() + 1 for found in self._inside.finditer(content)}
        trimmed = content.strip()
        start = len(content) - len(content.lstrip())
        end = start + len(trimmed)
        for length in range(1, min(self._longest, len(trimmed) + 1)):
            if trimmed[-length:] in self._heads:
                breaks.add(end - length + 1)
            if trimmed[:length] in self._tails:
                breaks.add(start + length - 1)
        if not breaks:
            return content
        cuts = [0, *sorted(breaks), len(content)]
        return mark.join(content[a:b] for a, b in pairwise(cuts))

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Texts, each with the control token that follows it (None after the last)."""
        parts = self._cut.split(text)
        for at in range(0, len(parts) - 1, 2):
            yield parts[at], self._ids[parts[at + 1]]
        yield parts[-1], None
