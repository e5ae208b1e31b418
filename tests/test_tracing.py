"""Traces of real requests, as a collector gets them: names, times, parents, and what never leaves the server."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.insert(0, str(Path(__file__).parent / "front"))

from echo_model import EchoEngine, LastMessage
from echo_service import Service, chat, expect_soon, get, post

from zerolayer.guard.ledger.record import Entry, Flag, Outcome
from zerolayer.serve import tracing
from zerolayer.serve.tracing import Collector, Traces, headers_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collecting(HTTPServer):
    """A collector that keeps what it gets; ``answer`` is its status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answer = 200
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self):
        requests = [ExportTraceServiceRequest.FromString(body) for _, _, body in self.got]
        return [span for each in requests for span in each.resource_spans[0].scope_spans[0].spans]


class Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def attributes(span) -> dict[str, object]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collecting]:
    server = Collecting()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def service(collector, monkeypatch) -> Iterator[Service]:
    monkeypatch.setattr(tracing, "_EVERY_S", 0.02)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
    flags = {"slots": "2", "slot-tokens": "512", "traces": collector.url}
    engine = EchoEngine(slots=2, slot_tokens=512, chunk_tokens=64, step_us=200)
    service = Service(flags, engine, None, 0.02, {}, {}, LastMessage)
    yield service
    service.close()


def test_a_request_is_a_span_with_names_of_the_conventions(service, collector):
    before = time.time_ns()
    reply = service.ask(chat("hello", max_tokens=8))
    expect_soon(collector.spans)
    (span,) = collector.spans()
    told, usage = attributes(span), reply.json["usage"]
    assert span.name == "chat echo"
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.provider.name"] == "zerolayer"
    assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == "echo"
    assert told["gen_ai.request.max_tokens"] == 8
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert told["http.response.status_code"] == 200
    assert told["zerolayer.request_id"] == reply.headers["x-request-id"]
    assert before <= span.start_time_unix_nano + 5_000_000
    assert span.start_time_unix_nano < span.end_time_unix_nano <= time.time_ns()


def test_its_stages_are_its_time_and_the_first_token_is_an_event(service, collector):
    service.ask(chat("hello", max_tokens=8))
    expect_soon(collector.spans)
    (span,) = collector.spans()
    stages = [value for key, value in attributes(span).items() if key.startswith("zerolayer.stage.")]
    assert len(stages) == 9
    assert sum(stages) * 1000 == span.end_time_unix_nano - span.start_time_unix_nano
    (event,) = span.events
    assert event.name == "first token"
    assert span.start_time_unix_nano < event.time_unix_nano <= span.end_time_unix_nano


def test_a_client_that_traces_is_the_parent(service, collector):
    service.ask(chat("hello", f"traceparent: {PARENT}"))
    expect_soon(collector.spans)
    (span,) = collector.spans()
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == tuple(PARENT.split("-")[1:3])


def test_a_span_names_the_conversation_where_the_client_does(service, collector):
    service.ask(chat("hello", "x-zl-session: talk-7"))
    service.ask(chat("hello"))
    expect_soon(lambda: len(collector.spans()) == 2)
    assert [attributes(span).get("gen_ai.conversation.id") for span in collector.spans()] == ["talk-7", None]


def test_a_client_that_says_no_is_not_traced(service, collector):
    service.ask(chat("hello", f"traceparent: {PARENT[:-2]}00"))
    service.ask(post("/v1/completions", {"model": "echo", "prompt": "hello"}))
    expect_soon(collector.spans)
    assert [span.name for span in collector.spans()] == ["text_completion echo"]


def test_an_error_is_told_by_its_code(service, collector):
    service.ask(chat("hello", model="nobody"))
    expect_soon(collector.spans)
    (span,) = collector.spans()
    assert (span.status.code, span.status.message) == (2, "model_not_found")
    assert attributes(span)["error.type"] == "model_not_found"


def test_no_word_of_a_prompt_and_no_key_is_in_a_span(service, collector):
    service.ask(chat("Heliotrope", "authorization: Bearer sk-zl1-aubergine", stream=True))
    expect_soon(collector.spans)
    assert not any(word in body for _, _, body in collector.got for word in (b"eliotrope", b"aubergine"))


def test_it_is_sent_as_collectors_expect_it(service, collector):
    service.ask(chat("hello"))
    expect_soon(lambda: collector.got)
    path, headers, _ = collector.got[0]
    headers = {name.lower(): value for name, value in headers.items()}
    assert path == "/v1/traces"
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["authorization"] == "Bearer secret"


def test_what_was_sent_and_what_was_not_is_counted(service, collector):
    service.ask(chat("hello"))
    expect_soon(collector.spans)

    def counted(outcome: str) -> str:
        page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
        return next(line for line in page.splitlines() if f'spans_total{{model_name="echo",outcome="{outcome}"' in line)

    expect_soon(lambda: counted("sent").endswith(" 1"))
    collector.answer = 503
    assert service.ask(chat("hello")).status == 200
    expect_soon(lambda: counted("dropped").endswith(" 1"))


def test_without_a_collector_nothing_is_traced(collector):
    engine = EchoEngine(slots=2, slot_tokens=512, chunk_tokens=64, step_us=200)
    service = Service({"slots": "2", "slot-tokens": "512"}, engine, None, 0.02, {}, {}, LastMessage)
    service.ask(chat("hello"))
    assert service.server.records.traces is None
    assert b"spans_total" not in service.ask(get("/metrics"), service.server.admin_port).body
    service.close()


def entry(**changed: object) -> Entry:
    return Entry(b"acme", model=b"m", route=b"chat.completions", code=b"stop", stages_us=(1,) * 9, **changed)


def test_what_is_left_is_sent_at_the_end():
    bodies: list[bytes] = []
    traces = Traces(1.0, {}, bodies.append, every_s=60)
    for _ in range(3):
        traces.take(entry(), None)
    traces.close()
    assert len(ExportTraceServiceRequest.FromString(bodies[0]).resource_spans[0].scope_spans[0].spans) == 3
    assert (traces.sent, traces.dropped) == (3, 0)


def test_a_share_is_kept_to_exactly():
    traces = Traces(0.25, {}, lambda body: None, every_s=60)
    for _ in range(40):
        traces.take(entry(), None)
    traces.close()
    assert traces.sent == 10


def test_a_tenant_whose_audit_is_off_is_not_traced():
    traces = Traces(1.0, {}, lambda body: None, every_s=60)
    traces.take(entry(flags=int(Flag.UNNAMED)), PARENT.encode())
    traces.close()
    assert traces.sent == 0


def test_a_collector_that_is_gone_costs_spans_and_nothing_else():
    def fail(body: bytes) -> None:
        raise OSError("nobody there")

    traces = Traces(1.0, {}, fail, every_s=60)
    for _ in range(tracing._WAITING + 5):
        traces.take(entry(), None)
    assert traces.dropped == 5
    traces.close()
    assert traces.sent == 0


def test_a_header_that_cannot_be_sent_costs_spans_and_not_the_thread(collector):
    traces = Traces(1.0, {}, Collector(collector.url, {"a": "b\nc"}).post, every_s=0.01)
    for dropped in (1, 2):
        traces.take(entry(), None)
        expect_soon(lambda dropped=dropped: traces.dropped == dropped)
    traces.close()


def test_a_client_that_left_is_no_error_of_the_server():
    bodies: list[bytes] = []
    traces = Traces(1.0, {}, bodies.append, every_s=60)
    traces.take(entry(outcome=int(Outcome.ABORTED)), None)
    traces.close()
    (span,) = ExportTraceServiceRequest.FromString(bodies[0]).resource_spans[0].scope_spans[0].spans
    assert attributes(span)["error.type"] == "aborted"
    assert span.status.code == 0


@pytest.mark.parametrize("path", ["", "/", "/own/path"])
def test_a_path_of_its_own_is_kept(collector, path):
    Collector(collector.url + path, {}).post(b"")
    assert collector.got[0][0] == (path if len(path) > 1 else "/v1/traces")


def test_headers_are_read_as_everywhere():
    assert headers_of("a=1, b = x%20y,broken,=3") == {"a": "1", "b": "x y"}
    assert json.dumps(headers_of("")) == "{}"
