"""Heads of HTTP/1.1 that differ from earlier ones in some values only: what changes is read, the rest is compared."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from zerolayer.wire.head_template import Template, holes
from zerolayer.wire.http1_head import Head

_TEMPLATES: Final = 4  # that a connection remembers
# A value as nearly everybody sends it: one space before it, none after it. Any other goes to the parser.
_VALUE: Final = re.compile(rb" ((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)(?=\r\n)")


class Habits:
    """Of the client of one connection, or of more; at most so many ``templates``, the newest first."""

    def __init__(self, templates: int = _TEMPLATES) -> None:
        self._most = templates
        self._templates: list[Template] = []
        self._last: tuple[list[bytes], Head] | None = None  # lines of the last head that was parsed, and the head

    def head(self, raw: bytes) -> Head | None:
        """The head that ``raw`` is, where it fits a template."""
        for template in self._templates:
            constants = template.constants
            if not raw.startswith(constants[0]):
                continue
            at = len(constants[0])
            values = []
            for constant in constants[1:]:
                found = _VALUE.match(raw, at)
                if found is None or not raw.startswith(constant, found.end()):
                    break
                values.append(found[1])
                at = found.end() + len(constant)
            else:
                if at == len(raw):
                    return template.filled(values)
        return None

    def learn(self, raw: bytes, head: Head) -> None:
        """A head was parsed from its first byte."""
        lines = raw.split(b"\r\n")
        last, self._last = self._last, (lines, head)
        if last is None or last[0][0] != lines[0] or len(last[0]) != len(lines):
            return
        if len(lines) != len(head.headers) + 3:  # the request line, and the empty ends of the last two
            return
        changed = [at for at, (before, after) in enumerate(zip(last[0], lines, strict=True)) if before != after]
        found = holes(head, [at - 1 for at in changed], last[1])
        names = [line.partition(b":")[0] + b":" for line in lines]
        if found is None or any(not last[0][at].startswith(names[at]) for at in changed):
            return
        bounds = [0, *changed, len(lines)]
        constants = [b"\r\n".join(lines[: changed[0]]) + b"\r\n" + names[changed[0]]]
        for before, after in pairwise(bounds[1:]):
            between = lines[before + 1 : after]
            end = b"" if after == len(lines) else b"\r\n" + names[after]
            constants.append(b"\r\n" + b"\r\n".join(between) + end if between else end)
        self._templates = [Template(tuple(constants), found, head), *self._templates[: self._most - 1]]
