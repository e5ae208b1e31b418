"""Heads of HTTP/1.1 that differ from earlier ones in some values only: what changes is read, the rest is compared."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Final

import msgspec

from zerolayer.wire._native import Template
from zerolayer.wire.head_template import are_holes
from zerolayer.wire.http1_head import Head, first_values

_TEMPLATES: Final = 4  # that a connection remembers
_NOTHING: Final[frozenset[bytes]] = frozenset()


class Habits:
    """Of the client of one connection, or of more; at most so many ``templates``, the newest first.

    The values of headers that are in ``untold`` are kept nowhere: they are holes, whether they change or not.
    """

    def __init__(self, templates: int = _TEMPLATES, untold: AbstractSet[bytes] = _NOTHING) -> None:
        self._most = templates
        self._untold = untold
        self._templates: list[Template] = []
        self._last: tuple[list[bytes], Head] | None = None  # lines of the last head that was parsed, and the head

    def head(self, raw: bytes) -> Head | None:
        """The head that ``raw`` is, where it fits a template."""
        for template in self._templates:
            head = template.http1(raw)
            if head is not None:
                return head
        return None

    def learn(self, raw: bytes, head: Head) -> None:
        """A head was parsed from its first byte."""
        lines = raw.split(b"\r\n")
        if len(lines) != len(head.headers) + 3:  # the request line, and the empty ends of the last two
            self._last = None
            return
        names = [line.partition(b":")[0] + b":" for line in lines]
        hidden = [at for at, (name, _) in enumerate(head.headers, 1) if name in self._untold]
        if hidden:
            lines, head = _without(lines, names, head, hidden)
        last, self._last = self._last, (lines, head)
        if last is None or last[0][0] != lines[0] or len(last[0]) != len(lines):
            last = (lines, head)
        changed = [at for at, (before, after) in enumerate(zip(last[0], lines, strict=True)) if before != after]
        changed = sorted({*changed, *hidden})
        if not are_holes(head, [at - 1 for at in changed], last[1]):
            return
        if any(not last[0][at].startswith(names[at]) for at in changed):
            return
        bounds = [0, *changed, len(lines)]
        constants = [b"\r\n".join(lines[: changed[0]]) + b"\r\n" + names[changed[0]]]
        for before, after in pairwise(bounds[1:]):
            between = lines[before + 1 : after]
            end = b"" if after == len(lines) else b"\r\n" + names[after]
            constants.append(b"\r\n" + b"\r\n".join(between) + end if between else end)
        template = Template(tuple(constants), tuple([at - 1 for at in changed]), head)
        self._templates = [template, *self._templates[: self._most - 1]]


def _without(lines: list[bytes], names: list[bytes], head: Head, places: list[int]) -> tuple[list[bytes], Head]:
    """The same lines and the same head, as if the headers on these lines had no values."""
    lines, headers = lines[:], [*head.headers]
    for at in places:
        lines[at] = names[at]
        headers[at - 1] = (headers[at - 1][0], b"")
    shown = tuple(headers)
    return lines, msgspec.structs.replace(head, headers=shown, values=first_values(shown))
