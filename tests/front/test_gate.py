"""Who may ask at all: host names, browser pages, content types."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
from echo_service import chat, get, post

from zerolayer.front.gate import Gate, local_hosts
from zerolayer.front.grpc import Calls, Method
from zerolayer.front.routes import Routes
from zerolayer.wire.head_template import STEERING
from zerolayer.wire.http1 import Head
from zerolayer.wire.http1_head import first_values

PAGE = "https://chat.example"
BODY = {"model": "echo", "messages": [{"role": "user", "content": "a"}]}


def _head(method: str = "GET", **headers: str) -> Head:
    pairs = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return Head(method, "/", "", pairs, 1, True, False, 0, first_values(pairs))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "127.0.0.2:8000"])
def test_a_local_name_passes_on_any_port(host):
    assert Gate(local_hosts("127.0.0.2")).check(_head(host=host)) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "[::2]", "", "["]
)
def test_a_rebound_name_is_refused(host):
    assert Gate(local_hosts("127.0.0.1")).check(_head(host=host)).status == 403


def test_who_names_no_host_is_no_browser():
    """HTTP/1.0 allows it, and health checks of balancers do it."""
    assert Gate(local_hosts("127.0.0.1")).check(_head()) is None


def test_any_name_passes_where_the_listener_is_public():
    assert Gate().check(_head(host="my.example")) is None


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:8001", "file://"])
def test_a_foreign_page_is_refused(origin):
    assert Gate(local_hosts("127.0.0.1")).check(_head(host="localhost:8000", origin=origin)).code == "origin_refused"


def test_a_page_of_this_very_address_passes():
    assert Gate().check(_head(host="localhost:8000", origin="http://localhost:8000")) is None


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_passes_with_parameters(content_type):
    assert Gate().check(_head("POST", host="x", content_type=content_type)) is None


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_what_a_form_can_send_is_refused(content_type):
    assert Gate().check(_head("POST", host="x", content_type=content_type)).status == 415


def test_a_missing_content_type_passes_from_programs_only():
    assert Gate().check(_head("POST", host="x")) is None
    assert Gate().check(_head("POST", host="x", origin="http://x")).status == 415


def test_a_compressed_body_is_refused():
    assert Gate().check(_head("POST", host="x", content_type="application/json", content_encoding="gzip")).status == 415


def test_the_service_refuses_a_rebound_name_and_a_form(serve):
    service = serve()
    assert service.ask(get("/v1/models", "host: evil.example")).error["code"] == "origin_refused"
    reply = service.ask(post("/v1/chat/completions", BODY, "content-type: text/plain"))
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")


def test_a_compressed_body_is_told_what_would_be_taken(serve):
    reply = serve().ask(post("/v1/chat/completions", BODY, "content-encoding: gzip"))
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")
    assert reply.headers["accept-encoding"] == "identity"


def test_without_cors_no_page_may_call(serve):
    reply = serve().ask(chat("a", f"origin: {PAGE}"))
    assert reply.status == 403
    assert "access-control-allow-origin" not in reply.headers


def test_the_allowed_page_may_ask_first_and_then_call(serve):
    service = serve(cors=PAGE)
    asked = get(
        "/v1/chat/completions",
        f"origin: {PAGE}",
        "access-control-request-method: POST",
        "access-control-request-headers: authorization,content-type",
        method="OPTIONS",
    )
    preflight = service.ask(asked)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
    reply = service.ask(chat("a", f"origin: {PAGE}"))
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["vary"] == "origin"


def test_another_page_than_the_allowed_one_may_not_call(serve):
    service = serve(cors=PAGE)
    assert service.ask(chat("a", "origin: https://chat.example.evil")).status == 403
    assert service.ask(get("/v1/models", "origin: https://x.example", method="OPTIONS")).status == 403


class _Noting(dict):
    """Header values that note which of them are looked at."""

    def __init__(self, values):
        super().__init__(values)
        self.looked_at = set()

    def get(self, name, default=None):
        self.looked_at.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("content_type", ["application/json", "application/grpc"])
def test_where_a_head_leads_depends_on_nothing_in_which_like_heads_differ(method, content_type):
    head = _head(method, host="x", content_type=content_type, origin="https://a", accept="*/*", x_request_id="a")
    noting = _Noting(head.values)
    head = Head(method, "/echo", "", head.headers, 2, True, False, 0, noting)
    exchange = SimpleNamespace(head=head, record=lambda: None)
    method_of_echo = Method(lambda call, message: None)
    calls = Calls({"/echo": method_of_echo}, lambda: 0, 1024)
    routes = Routes(Gate(origins=frozenset({b"https://a"})), {"/echo": {"POST": print, "GET": print}}, calls)
    routes.check(exchange)
    # The timeout is read of each call anew; whether there is a version counts, not which, and a template keeps that.
    assert noting.looked_at - {b"grpc-timeout", b"anthropic-version"} <= STEERING


def test_where_a_head_leads_is_remembered_no_longer_than_the_head_which_may_hold_a_key():
    routes = Routes(Gate(), {"/": {"GET": print}})
    head = _head("GET", host="x", authorization="Bearer sk-zl1-a")
    kept = weakref.ref(head)
    assert routes.check(SimpleNamespace(head=head, record=lambda: None)) is None
    assert len(routes._decisions) == 1
    del head
    assert kept() is None
    assert routes._decisions == {}
