"""Protocol buffers on the wire: fields of a message in, bytes of fields out; no schema here.

Source: https://protobuf.dev/programming-guides/encoding. A field is keyed by its *tag*, ``number << 3 | wire type``, so
a known number with another wire type is an unknown field, as in every implementation. Stricter than most: groups are
refused, and so are varints above 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Set as AbstractSet
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_MAX_TAG: Final = (1 << 32) - 1
_MAX_VARINT_BYTES: Final = 10
_fixed32 = struct.Struct("<I").unpack_from
_fixed64 = struct.Struct("<Q").unpack_from
_pack_fixed32 = struct.Struct("<I").pack
_pack_fixed64 = struct.Struct("<Q").pack

Value = int | bytes | list[int | bytes]
Fields = dict[int, Value]
"""Tag to value; a list for tags that may repeat, else the last value. Fixed numbers are unsigned."""


class Malformed(ValueError):
    """The bytes are no message. ``offset`` is where, ``reason`` why, in our own words."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


def read_fields(
    data: bytes, start: int, end: int, fields: Fields, repeated: AbstractSet[int], stop_tag: int = 1 << 64
) -> int:
    """Read fields from ``data[start:end]`` into ``fields`` up to the first tag of at least ``stop_tag``.

    Returns the offset where reading ended, which is ``end`` unless such a tag came. Raises Malformed.
    """
    at = start
    while at < end:
        begin = at
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = read_varint(data, begin, end)
        if tag >= stop_tag:
            return begin
        value: int | bytes
        kind = tag & 7
        if kind in (BYTES, VARINT):
            if at >= end:
                raise Malformed(at, "the message ends inside a field")
            value = data[at]
            at += 1
            if value > 0x7F:
                value, at = read_varint(data, at - 1, end)
            if kind == BYTES:
                length, at = value, at + value
                if at > end:
                    raise Malformed(begin, "a length reaches beyond the end")
                value = data[at - length : at]
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
            if at + size > end:
                raise Malformed(at, "the message ends inside a field")
            value = (_fixed32 if kind == FIXED32 else _fixed64)(data, at)[0]
            at += size
        else:
            raise Malformed(begin, "groups and unknown wire types are not supported")
        if tag < 8 or tag > _MAX_TAG:  # 8 is field 1 with wire type 0
            raise Malformed(begin, "a field number is out of range")
        if tag not in repeated:
            fields[tag] = value
        elif tag in fields:
            fields[tag].append(value)  # type: ignore[union-attr] # a repeated tag has a list, always
        else:
            fields[tag] = [value]
    return at


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at`` and the offset behind it. Raises Malformed."""
    number = shift = 0
    for offset in range(at, min(end, at + _MAX_VARINT_BYTES)):
        byte = data[offset]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return number, offset + 1
        shift += 7
    if end - at < _MAX_VARINT_BYTES:
        raise Malformed(at, "the message ends inside a number")
    raise Malformed(at, "a number has more than 64 bits")


def varint(number: int) -> bytes:
    """A number of 0 to 2**64 - 1."""
    if number < 0x80:
        return _ONE_BYTE[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def varint_field(number: int, value: int, *, keep_zero: bool = False) -> bytes:
    """Field ``number``; nothing for 0, which is what an absent field means, unless the field is ``optional``."""
    return varint(number << 3 | VARINT) + varint(value) if value or keep_zero else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Field ``number``; nothing when empty."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value if value else b""


def message_field(number: int, value: bytes) -> bytes:
    """A message in a message; an empty one is there all the same."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def fixed32_field(number: int, value: int) -> bytes:
    """Field ``number``, always written; ``value`` modulo 2**32."""
    return varint(number << 3 | FIXED32) + _pack_fixed32(value & 0xFFFF_FFFF)


def fixed64_field(number: int, value: int) -> bytes:
    """Field ``number``, always written; ``value`` modulo 2**64."""
    return varint(number << 3 | FIXED64) + _pack_fixed64(value & 0xFFFF_FFFF_FFFF_FFFF)


def float_field(number: int, value: float) -> bytes:
    """Field ``number``, always written; IEEE 754, 32 bits."""
    return varint(number << 3 | FIXED32) + struct.pack("<f", value)


def delimited(message: bytes) -> bytes:
    """A message with its length before it, as ``parseDelimitedFrom`` of the protobuf libraries reads it."""
    return varint(len(message)) + message


_ONE_BYTE: Final = tuple(bytes([number]) for number in range(0x80))
