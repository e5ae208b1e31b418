"""gRPC server reflection, ``grpc.reflection.v1`` and ``v1alpha``: what grpcurl asks before it can call anything.

Source: https://github.com/grpc/grpc-proto/blob/master/grpc/reflection/v1/reflection.proto; both versions have the same
messages. Only the schema's own file is described; the health service is listed, and its clients know it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from zerolayer.errors import InvalidRequest
from zerolayer.front.grpc import GrpcCall, Method
from zerolayer.wire.protobuf import BYTES, Fields, Malformed, message_field, read_fields, varint_field

_VERSIONS: Final = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
_FILE_NAME: Final = b"zerolayer/v1/inference.proto"
_PACKAGE: Final = b"zerolayer.v1."
_NOT_FOUND: Final = 5
_UNIMPLEMENTED: Final = 12

# Tags of ServerReflectionRequest.
_FILE_BY_NAME: Final = 3 << 3 | BYTES
_FILE_OF_SYMBOL: Final = 4 << 3 | BYTES
_LIST: Final = 7 << 3 | BYTES
# Field numbers of ServerReflectionResponse.
_ORIGINAL, _FILES, _SERVICES, _ERROR = 2, 4, 6, 7


class Reflection:
    """``services`` are the names that are listed."""

    def __init__(self, services: tuple[bytes, ...]) -> None:
        self._services = b"".join(message_field(1, message_field(1, name)) for name in services)
        file = _descriptor()
        self._file = message_field(1, file)
        self._symbols = _symbols(file)

    def methods(self) -> dict[str, Method]:
        """Path -> method."""
        return {
            f"/{version}.ServerReflection/ServerReflectionInfo": Method(self._info, streaming=True)
            for version in _VERSIONS
        }

    def _info(self, call: GrpcCall, message: bytes | None) -> None:
        if message is None:
            call.finish()
            return
        fields: Fields = {}
        try:
            read_fields(message, 0, len(message), fields, frozenset())
        except Malformed:
            raise InvalidRequest("the message is no ServerReflectionRequest") from None
        call.send(message_field(_ORIGINAL, message) + self._answer(fields))

    def _answer(self, fields: Fields) -> bytes:
        if _LIST in fields:
            return message_field(_SERVICES, self._services)
        symbol = fields.get(_FILE_OF_SYMBOL)
        if fields.get(_FILE_BY_NAME) == _FILE_NAME or (isinstance(symbol, bytes) and self._knows(symbol)):
            return message_field(_FILES, self._file)
        known = _FILE_BY_NAME in fields or symbol is not None
        code, text = (_NOT_FOUND, b"nothing of that name here") if known else (_UNIMPLEMENTED, b"no such question here")
        return message_field(_ERROR, varint_field(1, code) + message_field(2, text))

    def _knows(self, symbol: bytes) -> bool:
        """A message, enum or service of the schema, or anything inside one."""
        return symbol.startswith(_PACKAGE) and symbol[len(_PACKAGE) :].partition(b".")[0] in self._symbols


def _descriptor() -> bytes:
    """The FileDescriptorProto in the compiled schema, whose set has this one file."""
    fields: Fields = {}
    packed = (files("zerolayer.wire") / "inference.binpb").read_bytes()
    read_fields(packed, 0, len(packed), fields, frozenset())
    file = fields[1 << 3 | BYTES]
    assert isinstance(file, bytes)  # noqa: S101 - of our own making
    return file


def _symbols(file: bytes) -> frozenset[bytes]:
    """Names at the top of the file: messages (field 4), enums (5), services (6), each with its name in field 1."""
    tags = frozenset(number << 3 | BYTES for number in (4, 5, 6))
    fields: Fields = {}
    read_fields(file, 0, len(file), fields, tags)
    names: set[bytes] = set()
    for tag in tags:
        kinds = fields.get(tag, [])
        for kind in kinds if isinstance(kinds, list) else []:
            inner: Fields = {}
            if isinstance(kind, bytes):
                read_fields(kind, 0, len(kind), inner, frozenset())
            name = inner.get(1 << 3 | BYTES)
            if isinstance(name, bytes):
                names.add(name)
    return frozenset(names)
