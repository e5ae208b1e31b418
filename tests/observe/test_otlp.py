"""Spans as bytes: what OpenTelemetry's own messages read from them, and which parents are believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from zerolayer.observe.otlp import Event, Parent, Span, export_request, parent_of

TRACE, OWN = bytes(range(16)), bytes(range(8))


def read(*spans: Span, resource=None) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(export_request(resource or {}, ("zerolayer", "1"), spans))


def plain(value) -> object:
    kind = value.WhichOneof("value")
    return [plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def test_a_span_is_read_as_it_was_meant():
    span = Span(
        TRACE, OWN, "chat m", 1_000, 2_000, {"a": 1}, (Event("first token", 1_500),), b"12345678", "engine_failed"
    )
    (read_span,) = read(span).resource_spans[0].scope_spans[0].spans
    assert (read_span.trace_id, read_span.span_id, read_span.parent_span_id) == (TRACE, OWN, b"12345678")
    assert (read_span.name, read_span.kind) == ("chat m", 2)
    assert (read_span.start_time_unix_nano, read_span.end_time_unix_nano) == (1_000, 2_000)
    assert [(event.name, event.time_unix_nano) for event in read_span.events] == [("first token", 1_500)]
    assert (read_span.status.code, read_span.status.message) == (2, "engine_failed")


def test_a_span_without_an_error_leaves_its_status_open():
    (span,) = read(Span(TRACE, OWN, "chat m", 1, 2, {})).resource_spans[0].scope_spans[0].spans
    assert (span.status.code, span.status.message) == (0, "")


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        st.booleans()
        | st.integers(0, 2**63 - 1)
        | st.text(st.characters(codec="utf-8"), max_size=50)
        | st.lists(st.text(st.characters(codec="utf-8"), max_size=9), max_size=3),
        max_size=8,
    )
)
def test_any_attribute_comes_over(values):
    request = read(Span(TRACE, OWN, "n", 1, 2, values), resource=values)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert {each.key: plain(each.value) for each in span.attributes} == values
    assert {each.key: plain(each.value) for each in request.resource_spans[0].resource.attributes} == values


@given(st.integers(0, 40))
def test_a_request_has_all_spans(count):
    spans = [Span(TRACE, OWN, str(number), 1, 2, {}) for number in range(count)]
    assert [span.name for span in read(*spans).resource_spans[0].scope_spans[0].spans] == [str(n) for n in range(count)]


def test_a_parent_is_read_from_its_header():
    header = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"  # the example of W3C Trace Context
    assert parent_of(header) == Parent(
        bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), bytes.fromhex("b7ad6b7169203331"), True
    )
    assert parent_of(header[:-2] + b"00") == Parent(
        bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), bytes.fromhex("b7ad6b7169203331"), False
    )


@pytest.mark.parametrize(
    "header",
    [
        None, b"", b"00", b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    ],
)  # fmt: skip
def test_a_parent_that_is_none_is_not_believed(header):
    assert parent_of(header) is None


@given(st.binary(max_size=80))
def test_no_header_does_harm(header):
    assert parent_of(header) is None or len(parent_of(header).trace_id) == 16
