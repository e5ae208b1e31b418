"""Spans as OpenTelemetry's collectors take them: one ``ExportTraceServiceRequest`` in protobuf's binary form.

Source: opentelemetry-proto 1.x, ``trace/v1/trace.proto`` and ``common/v1/common.proto``, which are stable. Bytes alone:
no SDK, no sockets, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from zerolayer.wire.protobuf import bytes_field, fixed32_field, fixed64_field, message_field, varint_field

PATH: Final = "/v1/traces"
MEDIA: Final = "application/x-protobuf"
SAMPLED: Final = 1
_SERVER: Final = 2  # SpanKind
_FAILED: Final = 2  # StatusCode
# W3C Trace Context: version, trace id, parent id, flags; what a later version adds behind them is left alone.
_PARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Value = str | bool | int | Sequence[str]


class Parent(msgspec.Struct, frozen=True):
    """The span of the client that a request belongs to."""

    trace_id: bytes
    span_id: bytes
    sampled: bool


class Event(msgspec.Struct, frozen=True):
    """Something within a span, in Unix nanoseconds."""

    name: str
    at_ns: int


class Span(msgspec.Struct, frozen=True):
    """One request. Times in Unix nanoseconds; ``error`` is a code, empty for none."""

    trace_id: bytes
    span_id: bytes
    name: str
    started_ns: int
    ended_ns: int
    attributes: Mapping[str, Value]
    events: Sequence[Event] = ()
    parent_id: bytes = b""
    error: str = ""


def parent_of(header: bytes | None) -> Parent | None:
    """What ``traceparent`` says; None where there is none, or one that is wrong."""
    found = None if header is None else _PARENT.fullmatch(header)
    if found is None:
        return None
    trace_id, span_id = bytes.fromhex(found[1].decode()), bytes.fromhex(found[2].decode())
    if not any(trace_id) or not any(span_id):
        return None
    return Parent(trace_id, span_id, bool(int(found[3], 16) & SAMPLED))


def export_request(resource: Mapping[str, Value], scope: tuple[str, str], spans: Sequence[Span]) -> bytes:
    """The body of one ``POST``; ``scope`` is name and version of whoever made the spans."""
    name, version = scope
    scoped = message_field(1, bytes_field(1, name.encode()) + bytes_field(2, version.encode()))
    scoped += b"".join([message_field(2, _span(span)) for span in spans])
    return message_field(1, message_field(1, _attributes(1, resource)) + message_field(2, scoped))


def _span(span: Span) -> bytes:
    status = bytes_field(2, span.error.encode()) + varint_field(3, _FAILED) if span.error else b""
    return (
        bytes_field(1, span.trace_id)
        + bytes_field(2, span.span_id)
        + bytes_field(4, span.parent_id)
        + bytes_field(5, span.name.encode())
        + varint_field(6, _SERVER)
        + fixed64_field(7, span.started_ns)
        + fixed64_field(8, span.ended_ns)
        + _attributes(9, span.attributes)
        + b"".join([message_field(11, _event(event)) for event in span.events])
        + message_field(15, status)
        + fixed32_field(16, SAMPLED)
    )


def _event(event: Event) -> bytes:
    return fixed64_field(1, event.at_ns) + bytes_field(2, event.name.encode())


def _attributes(number: int, values: Mapping[str, Value]) -> bytes:
    return b"".join(
        [
            message_field(number, bytes_field(1, key.encode()) + message_field(2, _any(value)))
            for key, value in values.items()
        ]
    )


def _any(value: Value) -> bytes:
    """An ``AnyValue``; its fields are a ``oneof``, so that zero and empty are written too."""
    match value:
        case bool():
            return varint_field(2, int(value), keep_zero=True)
        case int():
            return varint_field(3, value, keep_zero=True)
        case str():
            return message_field(1, value.encode())
        case _:
            return message_field(5, b"".join([message_field(1, _any(each)) for each in value]))
