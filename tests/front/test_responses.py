"""The Responses API on real sockets, with the stock ``openai`` client and its strict checks as judge."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from echo_service import Service, expect_soon, get, post

from zerolayer.errors import EngineFailed


@pytest.fixture
def service(serve) -> Service:
    return serve(slots=2)


@pytest.fixture
def client(service) -> Iterator[openai.OpenAI]:
    address = f"http://127.0.0.1:{service.port}/v1"
    strict = {"_strict_response_validation": True}
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0, **strict) as client:
        yield client


def test_a_response(client):
    reply = client.responses.create(model="echo", input="Say this.", instructions="x")
    assert (reply.output_text, reply.status, reply.usage.total_tokens) == ("Say this.", "completed", 20)


def test_a_streamed_response_says_the_same(client):
    with client.responses.stream(model="echo", input="Say this.") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "Say this."
    assert (kinds[:2], kinds[-1]) == (["response.created", "response.in_progress"], "response.completed")


def test_max_output_tokens_makes_it_incomplete(client):
    reply = client.responses.create(model="echo", input="abcdef", max_output_tokens=3)
    assert (reply.output_text, reply.status) == ("abc", "incomplete")
    assert reply.incomplete_details.reason == "max_output_tokens"


def test_errors_are_those_of_the_client(client):
    with pytest.raises(openai.BadRequestError) as wrong:
        client.responses.create(model="echo", input="x", previous_response_id="resp_1")
    assert wrong.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="none", input="x")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_response_is_kept(service, method):
    reply = service.ask(get("/v1/responses/resp_1", method=method))
    assert (reply.status, "keeps no responses" in str(reply.error["message"])) == (404, True)


def test_its_tokens_can_be_counted(service):
    reply = service.ask(post("/v1/responses/input_tokens", {"model": "echo", "input": "abcd"}))
    assert reply.json == {"input_tokens": 5, "object": "response.input_tokens"}


def test_a_stream_that_fails_after_its_200_ends_with_response_failed_and_not_cleanly(service):
    service.hold_steps()
    service.step(3)
    with service.connect() as client:
        client.sendall(post("/v1/responses", {"model": "echo", "input": "abcdef", "stream": True}))
        expect_soon(lambda: service.stepped() == 3)
        service.engine.broken = EngineFailed("a step failed; send the request again")
        service.step(1)
        raw = b""
        while data := _receive(client):
            raw += data
    assert b"event: response.failed" in raw
    assert not raw.endswith(b"0\r\n\r\n")
    expect_soon(lambda: service.free_slots() == 2)


def _receive(client) -> bytes:
    try:
        return client.recv(65536)
    except ConnectionError:
        return b""
