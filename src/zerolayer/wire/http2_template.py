"""Header blocks that differ from earlier ones in some values only: what changes is read, the rest is compared.

Only for blocks of a client without a dynamic table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from zerolayer.wire.head_template import Template, holes
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_fields import FIELD_OVERHEAD, PSEUDO, VALUE, Field, list_size, value_start
from zerolayer.wire.http2_frames import Code, ConnectionFault
from zerolayer.wire.http2_huffman import BadHuffman, decode_huffman

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
            if block.startswith(template.constants[0]):
                values = _values(template, block)
                if values is not None:
                    return template.filled(values)
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
        found = holes(head, [at - pseudo + added for at in changed], last[1])
        starts = [value_start(parts[at]) for at in changed]
        if found is None or any(
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
        self._templates = [Template(tuple(constants), found, head), *self._templates[: _TEMPLATES - 1]]


def _values(template: Template, block: bytes) -> list[bytes] | None:
    at, size = len(template.constants[0]), len(block)
    values = []
    for constant in template.constants[1:]:
        if at >= size:
            return None
        length = block[at] & 0x7F
        end = at + 1 + length
        if length == _LONGEST or not block.startswith(constant, end):
            return None
        value = block[at + 1 : end]
        if block[at] & 0x80:
            try:
                value = decode_huffman(value)
            except BadHuffman:
                raise ConnectionFault(Code.COMPRESSION_ERROR) from None
        if not VALUE.fullmatch(value):
            return None
        values.append(value)
        at = end + len(constant)
    return values if at == size else None
