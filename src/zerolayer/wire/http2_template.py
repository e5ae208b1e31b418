"""Header blocks that differ from earlier ones in some values only: what changes is read, the rest is compared.

Only for blocks of a client without a dynamic table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from zerolayer.wire._native import Template
from zerolayer.wire.head_template import are_holes
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_fields import FIELD_OVERHEAD, PSEUDO, Field, list_size, value_start
from zerolayer.wire.http2_frames import Code, ConnectionFault
from zerolayer.wire.http2_huffman import HUFFMAN

_TEMPLATES: Final = 4  # that a connection remembers, the newest first
_LONGEST: Final = 0x7F  # a string from here on has a longer length, and goes to the decoder


class Habits:
    """Of the client of one connection, whose header lists have at most ``head_bytes``."""

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._templates: list[Template] = []
        self._last: tuple[list[bytes], Head] | None = None  # parts of the last block that was decoded, and its head

    def forget(self) -> None:
        """From here on the same bytes may mean something else."""
        self._templates.clear()
        self._last = None

    def head(self, block: bytes) -> Head | None:
        """The head that ``block`` is, where it fits a template. Raises ``ConnectionFault`` as the decoder would."""
        for template in self._templates:
            try:
                head = template.http2(block, HUFFMAN)
            except ValueError:
                raise ConnectionFault(Code.COMPRESSION_ERROR) from None
            if head is not None:
                return head
        return None

    def learn(self, parts: list[bytes], fields: Sequence[Field], head: Head) -> None:
        """A block of these parts was decoded field by field."""
        last, self._last = self._last, (parts, head)
        if last is None or len(last[0]) != len(parts):
            return
        changed = [at for at, (before, after) in enumerate(zip(last[0], parts, strict=True)) if before != after]
        pseudo = sum([name in PSEUDO for name, _ in fields])
        if not changed or changed[0] < pseudo:
            return
        added = len(head.headers) - (len(fields) - pseudo)  # a host header may stand for :authority
        places = [at - pseudo + added for at in changed]
        starts = [value_start(parts[at]) for at in changed]
        if not are_holes(head, places, last[1]) or any(
            not start or last[0][at][:start] != parts[at][:start] for at, start in zip(changed, starts, strict=True)
        ):
            return
        # Values must stay so short that nothing in a list of a fitting block can make it too large.
        room = self._head_bytes - list_size(fields)
        if room < len(changed) * (FIELD_OVERHEAD + 2 * _LONGEST):
            return
        constants = [b"".join(parts[: changed[0]]) + parts[changed[0]][: starts[0]]]
        bounds = [*zip(changed, starts, strict=True), (len(parts), 0)]
        for (before, _), (after, start) in pairwise(bounds):
            end = parts[after][:start] if after < len(parts) else b""
            constants.append(b"".join(parts[before + 1 : after]) + end)
        self._templates = [Template(tuple(constants), tuple(places), head), *self._templates[: _TEMPLATES - 1]]
