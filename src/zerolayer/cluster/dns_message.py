"""DNS messages, as far as finding nodes needs them: one question, and answers of the kinds A, AAAA, SRV and CNAME.

RFC 1035 section 4 (messages, compression), RFC 3596 (AAAA), RFC 2782 (SRV). Sans-IO.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_HEAD: Final = struct.Struct("!HHHHHH")  # id, flags, counts of questions, answers, authorities, additionals
_RECORD: Final = struct.Struct("!HHIH")  # type, class, time to live, length of the data
_SRV: Final = struct.Struct("!HHH")  # priority, weight, port
_INTERNET: Final = 1
_RECURSE: Final = 0x0100
_REPLY: Final = 0x8000
_TRUNCATED: Final = 0x0200
_CODE: Final = 0x000F
_NO_SUCH_NAME: Final = 3
_POINTER: Final = 0xC0
_LABEL_BYTES: Final = 63
_NAME_BYTES: Final = 253
_JUMPS: Final = 64  # more pointers than any name has labels


class Kind(IntEnum):
    """Types of records."""

    A = 1
    CNAME = 5
    AAAA = 28
    SRV = 33


class MessageError(ValueError):
    """Bytes that are no reply to the question."""


class ServerFailed(MessageError):
    """A reply to the question that says that this server cannot, or will not, answer it (RFC 1035, RCODE)."""


@dataclass(frozen=True)
class Record:
    """One answer. ``value`` is an address or a name, lower-case and without its last dot; ``port`` is SRV's."""

    name: str
    kind: int
    ttl_s: int
    value: str
    port: int = 0


@dataclass(frozen=True)
class Reply:
    """``truncated``: there is more, over TCP. No ``records``: the name has none of this kind, or does not exist."""

    records: tuple[Record, ...]
    truncated: bool


def question(number: int, name: str, kind: Kind) -> bytes:
    """The query. ``number`` is 16 bits that nobody can guess. Raises ``MessageError`` for what is no name."""
    labels = name.rstrip(".").encode("ascii", "replace").split(b".")
    if sum(len(label) + 1 for label in labels) > _NAME_BYTES or not all(0 < len(x) <= _LABEL_BYTES for x in labels):
        raise MessageError("not a domain name")
    written = b"".join([bytes([len(label)]) + label for label in labels])
    return _HEAD.pack(number, _RECURSE, 1, 0, 0, 0) + written + b"\0" + struct.pack("!HH", kind, _INTERNET)


def read_reply(data: bytes, asked: bytes) -> Reply:
    """The reply to ``asked``. Raises ``MessageError``, and of its kinds ``ServerFailed``."""
    try:
        number, flags, questions, answers, _, _ = _HEAD.unpack_from(data)
        failed = flags & _CODE not in (0, _NO_SUCH_NAME)
        if number != _HEAD.unpack_from(asked)[0] or not flags & _REPLY:
            raise MessageError("not a reply to this question")
        end = len(asked)
        repeated = questions == 1 and data[_HEAD.size : end].lower() == asked[_HEAD.size :].lower()
        if not (repeated or (failed and questions == 0)):  # a server that cannot read a question does not repeat it
            raise MessageError("a reply to another question")
        if failed:
            raise ServerFailed("the name server failed or refused")
        records = []
        for _ in range(answers):
            record, end = _read_record(data, end)
            if record is not None:
                records.append(record)
    except (struct.error, IndexError) as error:
        raise MessageError("the reply ends too early") from error
    return Reply(tuple(records), bool(flags & _TRUNCATED))


def _read_record(data: bytes, at: int) -> tuple[Record | None, int]:
    name, at = _read_name(data, at)
    kind, family, ttl_s, length = _RECORD.unpack_from(data, at)
    at += _RECORD.size
    end = at + length
    if end > len(data):
        raise MessageError("the reply ends too early")
    if family != _INTERNET:
        return None, end
    if kind in (Kind.A, Kind.AAAA):
        if length != (4 if kind == Kind.A else 16):
            raise MessageError("an address of a wrong length")
        return Record(name, kind, ttl_s, str(ipaddress.ip_address(data[at:end]))), end
    if kind == Kind.SRV:
        port = _SRV.unpack_from(data, at)[2]
        return Record(name, kind, ttl_s, _read_name(data, at + _SRV.size)[0], port), end
    if kind == Kind.CNAME:
        return Record(name, kind, ttl_s, _read_name(data, at)[0]), end
    return None, end


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    """The name, and where it ends; a pointer ends it there and goes on elsewhere."""
    labels: list[str] = []
    end = -1
    for _ in range(_JUMPS + _NAME_BYTES):
        length = data[at]
        if length & _POINTER == _POINTER:
            end = at + 2 if end < 0 else end
            at = struct.unpack_from("!H", data, at)[0] & 0x3FFF
            continue
        if length & _POINTER or at + 1 + length > len(data):
            raise MessageError("a label that is none")
        at += 1
        if length == 0:
            return ".".join(labels), at if end < 0 else end
        labels.append(data[at : at + length].decode("ascii", "replace").lower())
        if sum(map(len, labels)) + len(labels) > _NAME_BYTES + 1:
            raise MessageError("a name that is too long")
        at += length
    raise MessageError("a name without an end")
