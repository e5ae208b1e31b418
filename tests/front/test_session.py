"""The name of a conversation: who may give it, where it is told, and what it may look like."""

from __future__ import annotations

import io
import logging

import grpc
import pytest
from echo_service import chat, expect_soon, post

from wire.inference_messages import message
from zerolayer.observe.logs import start_logging

Error = message("Error")
Request = message("GenerateRequest")
MEDIA = "content-type: application/x-protobuf"


@pytest.fixture
def log(monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    stream = io.StringIO()
    start_logging("text", "info", access=True, stream=stream)
    yield stream
    root.setLevel(level)
    logging.getLogger("zerolayer.access").setLevel(logging.NOTSET)


def generate(*headers: str, **fields: object) -> bytes:
    request = Request(model="echo", messages=[{"role": 2, "content": b"hi"}], **fields)
    return post("/v1/generate", request.SerializeToString(), MEDIA, *headers)


def told(log: io.StringIO) -> list[str]:
    """The session of each line of the access log."""
    lines = [line for line in log.getvalue().splitlines() if "access request" in line]
    return [line.partition("session=")[2].split(" ")[0].strip('"') for line in lines]


@pytest.mark.parametrize(
    "request_bytes",
    [
        generate(session="talk-7"),
        generate("x-zl-session: talk-7"),
        chat("hi", "x-zl-session: talk-7"),
        generate("x-zl-session: other", session="talk-7"),
    ],
    ids=["field", "header", "header of a JSON route", "field before header"],
)
def test_the_access_log_tells_the_session(serve, log, request_bytes):
    assert serve(access_log="true").ask(request_bytes).status == 200
    assert told(log) == ["talk-7"]


def test_grpc_gives_it_in_its_metadata_too(serve, log):
    service = serve(access_log="true")
    request = Request(model="echo", messages=[{"role": 2, "content": b"hi"}]).SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        call = channel.unary_stream("/zerolayer.v1.Inference/Generate")
        assert list(call(request, metadata=[("zl-session", "talk-7")], timeout=10))
    expect_soon(lambda: told(log) == ["talk-7"])


def test_a_tenant_whose_audit_is_off_has_no_session_in_the_log(serve, log):
    service = serve(access_log="true", sections={"ledger": {"audit": "off"}})
    service.ask(chat("hi", "x-zl-session: talk-7"))
    assert "talk-7" not in log.getvalue()


@pytest.mark.parametrize("name", ["x" * 129, "two words", "caf\xe9", ""])
def test_a_header_over_the_limit_is_refused(serve, name):
    reply = serve().ask(chat("hi", f"x-zl-session: {name}"))
    assert (reply.status, reply.json["error"]["param"]) == (400, "x-zl-session")


@pytest.mark.parametrize("name", ["x" * 129, "two words", "caf\xe9"])
def test_a_field_over_the_limit_is_refused(serve, name):
    reply = serve().ask(generate(session=name))
    assert (reply.status, Error.FromString(reply.body).param) == (400, "session")


def test_answers_do_not_depend_on_it(serve):
    service = serve()
    plain, named = service.ask(chat("hi")), service.ask(chat("hi", "x-zl-session: talk-7"))
    assert plain.json["choices"] == named.json["choices"]
