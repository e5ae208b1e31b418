"""Protocol buffers field by field, with the names of ``proto/zerolayer/v1/inference.proto``.

The names come from the compiled schema (a ``FileDescriptorSet``), which is itself a message and read by the same code.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, cast

import msgspec

from zerolayer.check.wire_range import Body, ByteRange, Ranges, shown
from zerolayer.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, Fields, Malformed, read_fields, read_varint

_WIRE_NAMES: Final = {VARINT: "varint", FIXED64: "fixed64", BYTES: "bytes", FIXED32: "fixed32", 3: "group", 4: "group"}
# Types of google/protobuf/descriptor.proto, FieldDescriptorProto.Type: (name, wire type).
_TYPES: Final = {
    2: ("float", FIXED32),
    4: ("uint64", VARINT),
    6: ("fixed64", FIXED64),
    7: ("fixed32", FIXED32),
    8: ("bool", VARINT),
    9: ("string", BYTES),
    11: ("message", BYTES),
    12: ("bytes", BYTES),
    13: ("uint32", VARINT),
    14: ("enum", VARINT),
    15: ("sfixed32", FIXED32),
}
_REPEATED: Final = 3
_SIZES: Final = {FIXED32: 4, FIXED64: 8}
_DEPTH: Final = 16


class FieldType(msgspec.Struct, frozen=True):
    """A field of the schema. ``of``: the message or enum that it holds."""

    name: str
    type: str
    wire: int
    repeated: bool
    of: str


class Schema(msgspec.Struct, frozen=True):
    """Messages by name to fields by number; enums by name to names by number."""

    messages: Mapping[str, Mapping[int, FieldType]]
    enums: Mapping[str, Mapping[int, str]]


@cache
def schema() -> Schema:
    """The compiled schema of this package."""
    file = _first((files("zerolayer.wire") / "inference.binpb").read_bytes(), 1)
    messages = {}
    for raw in _all(file, 4):
        fields = [_field_type(field) for field in _all(raw, 2)]
        messages[_first(raw, 1).decode()] = dict(fields)
    enums = {}
    for raw in _all(file, 5):
        enums[_first(raw, 1).decode()] = {_number(value, 2): _first(value, 1).decode() for value in _all(raw, 2)}
    return Schema(messages, enums)


def _field_type(raw: bytes) -> tuple[int, FieldType]:
    name, wire = _TYPES[_number(raw, 5)]
    of = _first(raw, 6).decode().rpartition(".")[2]
    return _number(raw, 3), FieldType(_first(raw, 1).decode(), name, wire, _number(raw, 4) == _REPEATED, of)


def _fields(raw: bytes, repeated: int = 0) -> Fields:
    fields: Fields = {}
    read_fields(raw, 0, len(raw), fields, {repeated << 3 | BYTES})
    return fields


def _all(raw: bytes, number: int) -> list[bytes]:
    return cast("list[bytes]", _fields(raw, number).get(number << 3 | BYTES, []))


def _first(raw: bytes, number: int) -> bytes:
    return next(iter(_all(raw, number)), b"")


def _number(raw: bytes, number: int) -> int:
    return cast(int, _fields(raw).get(number << 3 | VARINT, 0))


class ProtobufDump:
    """Walks ``body`` as messages of the type ``message``. After a fault of the format the rest is one range."""

    def __init__(self, body: Body, message: str) -> None:
        self._body = body
        self._message = message

    def ranges(self, start: int, end: int, depth: int) -> Ranges:
        """The fields of one message."""
        yield from self._fields(start, end, self._message, depth)

    def delimited(self, depth: int) -> Ranges:
        """Messages one after another, each behind its length."""
        data, at = self._body.data, 0
        while at < len(data):
            try:
                size, start = read_varint(data, at, len(data))
            except Malformed as wrong:
                yield self._range(at, len(data), "length", "varint", "", wrong.reason, depth)
                return
            end = min(start + size, len(data))
            fault = "" if start + size <= len(data) else f"the message ends {start + size - len(data)} bytes early"
            yield self._range(at, start, "length", "varint", str(size), fault, depth)
            yield from self._fields(start, end, self._message, depth + 1)
            at = end

    def _fields(self, at: int, end: int, message: str, depth: int) -> Ranges:
        data = self._body.data
        while at < end:
            begin = at
            try:
                tag, at = read_varint(data, at, end)
                number, wire = tag >> 3, tag & 7
                value_at, at = self._value(at, end, wire)
            except Malformed as wrong:
                yield self._range(begin, end, "", "field", "", wrong.reason, depth)
                return
            field = schema().messages[message].get(number)
            yield from self._field(begin, value_at, at, number, wire, field, depth)

    def _value(self, at: int, end: int, wire: int) -> tuple[int, int]:
        """Where the value begins and ends. Raises Malformed."""
        start = at
        if wire in (VARINT, BYTES):
            number, at = read_varint(self._body.data, at, end)
            if wire == BYTES:
                start, at = at, at + number
        elif wire in _SIZES:
            at += _SIZES[wire]
        else:
            raise Malformed(at, "groups and unknown wire types are not supported")
        if at > end:
            raise Malformed(start, f"the value ends {at - end} bytes early")
        return start, at

    def _field(
        self, begin: int, start: int, end: int, number: int, wire: int, field: FieldType | None, depth: int
    ) -> Ranges:
        raw = self._body.data[start:end]
        if field is None:
            yield self._range(
                begin, end, f"{number} ?", _WIRE_NAMES[wire], _plain(raw, wire), "unknown: ignored", depth
            )
            return
        tag = f"{number} {field.name}"
        if field.type == "message" and wire == BYTES and depth < _DEPTH:
            yield self._range(begin, end, tag, field.of, f"{len(raw)} bytes", "", depth)
            yield from self._fields(start, end, field.of, depth + 1)
        elif wire == field.wire or (field.repeated and wire == BYTES):
            value, fault = _value_of(raw, field, wire)
            yield self._range(begin, end, tag, field.type, value, fault, depth)
        else:
            fault = f"wire type {_WIRE_NAMES[wire]}, not {_WIRE_NAMES[field.wire]}: ignored"
            yield self._range(begin, end, tag, field.type, _plain(raw, wire), fault, depth)

    def _range(self, start: int, end: int, tag: str, kind: str, value: str, fault: str, depth: int) -> ByteRange:
        return ByteRange(self._body.offset(start), end - start, tag, kind, value, fault, depth)


def _plain(raw: bytes, wire: int) -> str:
    return shown(raw) if wire == BYTES else str(_unsigned(raw, wire))


def _unsigned(raw: bytes, wire: int) -> int:
    return read_varint(raw, 0, len(raw))[0] if wire == VARINT else int.from_bytes(raw, "little")


def _value_of(raw: bytes, field: FieldType, wire: int) -> tuple[str, str]:
    """The value for people, and what is wrong with it."""
    if field.name == "token_ids" and wire == BYTES:
        return _token_ids(raw, packed=field.repeated)
    if wire == BYTES:
        try:
            raw.decode()
        except UnicodeDecodeError as wrong:
            return shown(raw), f"not UTF-8 at byte {wrong.start}"
        return shown(raw), ""
    if field.type == "float":
        return f"{struct.unpack('<f', raw)[0]:g}", ""
    number = _unsigned(raw, wire)
    if field.type == "enum":
        name = schema().enums[field.of].get(number)
        return name or str(number), "" if name else "no such value"
    if field.type == "bool":
        return str(bool(number)).lower(), ""
    if field.type == "sfixed32":
        number -= number >> 31 << 32
    return str(number), "more than 32 bits" if field.type == "uint32" and number >> 32 else ""


def _token_ids(raw: bytes, *, packed: bool) -> tuple[str, str]:
    ids: list[int] = []
    fault = ""
    if packed:
        at = 0
        try:
            while at < len(raw):
                number, at = read_varint(raw, at, len(raw))
                ids.append(number)
        except Malformed as wrong:
            fault = wrong.reason
    else:
        ids = [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]
        fault = "not four bytes for each token" if len(raw) % 4 else ""
    first = ", ".join(map(str, ids[:8]))
    return f"{len(ids)} ids: {first}{', ...' if len(ids) > 8 else ''}", fault
