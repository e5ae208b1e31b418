"""Header blocks of HTTP/2 field by field (RFC 7541): where each lies, how it is coded, and what it says."""

from __future__ import annotations

from typing import Final

from hpack import HPACKError
from hpack.hpack import decode_integer
from hpack.table import HeaderTable

from zerolayer.check.wire_range import Body, ByteRange, shown
from zerolayer.wire.http2_fields import MalformedHead, check_field
from zerolayer.wire.http2_huffman import BadHuffman, decode_huffman

_TABLE_BYTES: Final = 4096  # of a table, until the other side's SETTINGS say more
_MOST_TABLE_BYTES: Final = 1 << 20
_RESIZE: Final = "resize"
_OF_REPLIES: Final = frozenset({b":status"})
_DAMAGED: Final = "an earlier block is damaged, so that this one cannot be told"

Field = tuple[bytes, bytes]


class FieldReader:
    """Of one half of a connection. Blocks come in their order, because they may refer to earlier ones."""

    def __init__(self) -> None:
        self._table = HeaderTable()
        self._damaged = False

    def ranges(self, block: Body, depth: int) -> tuple[list[Field], list[ByteRange]]:
        """The fields of one block, and a range for each."""
        fields: list[Field] = []
        parts: list[ByteRange] = []
        data, at = block.data, 0
        if self._damaged:
            rest = ByteRange(block.offset(0), len(data), "fields", "hpack", shown(data), _DAMAGED, depth)
            return fields, [rest]
        while at < len(data):
            start = at
            try:
                name, kind, value, at = self._next(data, at)
            except _Wrong as wrong:
                self._damaged = True
                reason = f"{wrong} (COMPRESSION_ERROR)"
                offset, size = block.offset(start), len(data) - start
                parts.append(ByteRange(offset, size, "field", "hpack", shown(data[start:]), reason, depth))
                break
            tag = name.decode("latin-1")
            if kind == _RESIZE:
                fault = _resize_fault(int(value), first=not fields)
                parts.append(ByteRange(block.offset(start), at - start, tag, kind, value.decode(), fault, depth))
                continue
            fields.append((name, value))
            fault = _fault(name, value)
            parts.append(ByteRange(block.offset(start), at - start, tag, kind, shown(value), fault, depth))
        return fields, parts

    def _next(self, data: bytes, at: int) -> tuple[bytes, str, bytes, int]:
        """Name, how it is coded, value, and the offset behind it. Raises ``_Wrong``."""
        first = data[at]
        if first & 0x80:
            index, at = _integer(data, at, 7)
            name, value = self._entry(index)
            return name, "indexed", value, at
        if first & 0x60 == 0x20:
            size, at = _integer(data, at, 5)
            if size > _MOST_TABLE_BYTES:
                raise _Wrong("no table is so large")
            self._table.maxsize = size
            return b"table size", _RESIZE, b"%d" % size, at
        kept = bool(first & 0x40)
        index, at = _integer(data, at, 6 if kept else 4)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _string(data, at)
        value, at = _string(data, at)
        if kept:
            self._table.add(name, value)
        return name, "kept" if kept else "never kept" if first & 0x10 else "literal", value, at

    def _entry(self, index: int) -> Field:
        try:
            name, value = self._table.get_by_index(index)
        except HPACKError:
            raise _Wrong(f"there is no entry {index}") from None
        return bytes(name), bytes(value)


class _Wrong(Exception):
    """What is wrong with the field."""


def _resize_fault(size: int, *, first: bool) -> str:
    if not first:
        return "a table's size may change only before the first field"
    return "" if size <= _TABLE_BYTES else f"more than {_TABLE_BYTES} need SETTINGS of the other side"


def _fault(name: bytes, value: bytes) -> str:
    if name in _OF_REPLIES:
        return ""
    try:
        check_field(name, value)
    except MalformedHead:
        return "no message may have this field (PROTOCOL_ERROR)"
    return ""


def _integer(data: bytes, at: int, bits: int) -> tuple[int, int]:
    try:
        value, size = decode_integer(data[at : at + 8], bits)
    except HPACKError:
        raise _Wrong("the block ends inside a number, or it is too long") from None
    return value, at + size


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(data):
        raise _Wrong("the block ends inside a field")
    huffman = bool(data[at] & 0x80)
    size, at = _integer(data, at, 7)
    raw = data[at : at + size]
    if len(raw) < size:
        raise _Wrong(f"a string ends {size - len(raw)} bytes early")
    if not huffman:
        return raw, at + size
    try:
        return decode_huffman(raw), at + size
    except BadHuffman:
        raise _Wrong("no text has this Huffman coding") from None
