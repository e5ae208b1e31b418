"""``zerolayer wire FILE``: any captured request or reply, range by range, with what is wrong where.

Offsets are those of the file. Beside the format, requests are held against the limits of the default contract, as a
server with that contract would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.check.errors import InputFileError
from zerolayer.check.files import read_bytes
from zerolayer.check.wire_http1 import Http1Dump, looks_like_http1
from zerolayer.check.wire_http2 import PREFACE, Http2Dump, looks_like_frames
from zerolayer.check.wire_json import JsonDump, event_ranges
from zerolayer.check.wire_protobuf import ProtobufDump
from zerolayer.check.wire_range import Body, ByteRange, Ranges
from zerolayer.check.wire_verdict import judged_body, judged_requests

VERSION: Final = 1
_MOST_BYTES: Final = 1 << 28


def _json(data: bytes) -> Ranges:
    return JsonDump(Body([(0, data)]), 0, len(data)).ranges()


def _protobuf(message: str) -> Callable[[bytes], Ranges]:
    return lambda data: ProtobufDump(Body([(0, data)]), message).ranges(0, len(data), 0)


FORMS: Final[dict[str, Callable[[bytes], Ranges]]] = {
    "http1": lambda data: judged_requests(data, Http1Dump(data).ranges()),
    "http2": lambda data: Http2Dump(data).ranges(),
    "json": _json,
    "sse": lambda data: event_ranges(Body([(0, data)]), 0),
    "request": lambda data: judged_body(b"/v1/generate", data, _protobuf("GenerateRequest")(data), len(data)),
    "reply": _protobuf("GenerateReply"),
    "replies": lambda data: ProtobufDump(Body([(0, data)]), "GenerateReply").delimited(0),
    "error": _protobuf("Error"),
}
"""By the name that ``--as`` takes; the last four are messages of the schema."""


class _Dump(msgspec.Struct):
    version: int
    form: str
    bytes: int
    faults: int
    ranges: list[ByteRange]


def guess(data: bytes) -> str:
    """The form that ``data`` has most likely; what nothing else claims is a message."""
    if data.startswith(PREFACE[:16]) or looks_like_frames(data):
        return "http2"
    if looks_like_http1(data):
        return "http1"
    begin = data.lstrip()[:6]
    if begin.startswith((b"{", b"[")):
        return "json"
    if begin.startswith((b"data:", b"event:")):
        return "sse"
    clean = [form for form in ("request", "reply", "replies", "error") if not any(r.fault for r in FORMS[form](data))]
    return clean[0] if clean else "request"


def read(path: Path) -> bytes:
    """A capture. Raises ``InputFileError`` when it cannot be read, is too large, or is empty."""
    data = read_bytes(path, most=_MOST_BYTES, remedy="Cut out the part that matters.")
    if not data:
        raise InputFileError(f"{path} is empty. Name a file that holds what was sent or received.")
    return data


def lines(ranges: Iterable[ByteRange]) -> Iterator[str]:
    """A table for people: one line a range, and one more for what is wrong with it."""
    yield f"{'offset':>8}  {'size':>6}  {'tag':<34}  {'type':<14}  value"
    for part in ranges:
        tag = "  " * min(part.depth, 8) + part.tag
        yield f"{part.offset:>8}  {part.size:>6}  {tag:<34}  {part.type:<14}  {part.value}".rstrip()
        if part.fault:
            yield f"{'':>8}  {'':>6}  {'  ' * min(part.depth, 8)}^ {part.fault}"


def as_json(form: str, data: bytes, ranges: Iterable[ByteRange]) -> bytes:
    """``{"version": 1, "form": ..., "bytes": ..., "faults": ..., "ranges": [...]}``; offsets and sizes in bytes."""
    found = list(ranges)
    faults = sum(bool(part.fault) for part in found)
    return msgspec.json.encode(_Dump(VERSION, form, len(data), faults, found))
