"""gRPC server reflection, ``grpc.reflection.v1`` and ``v1alpha``: what grpcurl asks before it can call anything.

Source: https://github.com/grpc/grpc-proto/blob/master/grpc/reflection/v1/reflection.proto; both versions have the same
messages. The services that are listed are described, so that whoever knows nothing of them can call them.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final, cast

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.front.grpc import GrpcCall, Method
from zerolayer.wire.protobuf import BYTES, Fields, Malformed, message_field, read_fields, varint_field

_VERSIONS: Final = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
_COMPILED: Final = ("inference.binpb", "health.binpb")
_QUESTION_BYTES: Final = 4096
_NOT_FOUND: Final = 5
_UNIMPLEMENTED: Final = 12

# Tags of ServerReflectionRequest.
_FILE_BY_NAME: Final = 3 << 3 | BYTES
_FILE_OF_SYMBOL: Final = 4 << 3 | BYTES
_LIST: Final = 7 << 3 | BYTES
# Field numbers of ServerReflectionResponse.
_ORIGINAL, _FILES, _SERVICES, _ERROR = 2, 4, 6, 7


class _File(msgspec.Struct, frozen=True):
    """One .proto file: its name, the package with its dot, what is declared at its top, and itself, as it is sent."""

    name: bytes
    package: bytes
    symbols: frozenset[bytes]
    descriptor: bytes

    def knows(self, symbol: bytes) -> bool:
        """A message, enum or service of the file, or anything inside one."""
        return symbol.startswith(self.package) and symbol[len(self.package) :].partition(b".")[0] in self.symbols


class Reflection:
    """``services`` are the names that are listed."""

    def __init__(self, services: tuple[bytes, ...]) -> None:
        self._services = b"".join(message_field(1, message_field(1, name)) for name in services)
        self._files = tuple(_read(name) for name in _COMPILED)

    def methods(self) -> dict[str, Method]:
        """Path -> method."""
        return {
            f"/{version}.ServerReflection/ServerReflectionInfo": Method(
                self._info, streaming=True, message_bytes=_QUESTION_BYTES
            )
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
        name, symbol = fields.get(_FILE_BY_NAME), fields.get(_FILE_OF_SYMBOL)
        for file in self._files:
            if name == file.name or (isinstance(symbol, bytes) and file.knows(symbol)):
                return message_field(_FILES, message_field(1, file.descriptor))
        known = name is not None or symbol is not None
        code, text = (_NOT_FOUND, b"nothing of that name here") if known else (_UNIMPLEMENTED, b"no such question here")
        return message_field(_ERROR, varint_field(1, code) + message_field(2, text))


def _read(compiled: str) -> _File:
    """The FileDescriptorProto in a compiled set, which has this one file."""
    descriptor = _bytes((files("zerolayer.wire") / compiled).read_bytes(), 1)
    return _File(_bytes(descriptor, 1), _bytes(descriptor, 2) + b".", _symbols(descriptor), descriptor)


def _bytes(message: bytes, number: int) -> bytes:
    fields: Fields = {}
    read_fields(message, 0, len(message), fields, frozenset())
    value = fields[number << 3 | BYTES]
    assert isinstance(value, bytes)  # noqa: S101 - of our own making
    return value


def _symbols(file: bytes) -> frozenset[bytes]:
    """Names at the top of the file: messages (field 4), enums (5), services (6), each with its name in field 1."""
    tags = frozenset(number << 3 | BYTES for number in (4, 5, 6))
    fields: Fields = {}
    read_fields(file, 0, len(file), fields, tags)
    kinds = [kind for tag in tags for kind in cast("list[bytes]", fields.get(tag, []))]
    return frozenset([_bytes(kind, 1) for kind in kinds])
