"""The stock ``openai`` client as judge, over HTTP/1.1 and over HTTP/2."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from echo_service import Service, chat, expect_soon

from zerolayer.errors import EngineFailed

ASK = [{"role": "user", "content": "Say this."}]


@pytest.fixture
def service(serve) -> Service:
    return serve(slots=2)


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def client(service, request) -> Iterator[openai.OpenAI]:
    http2 = request.param == "HTTP/2"
    transport = openai.DefaultHttpxClient(http1=not http2, http2=http2)
    address = f"http://127.0.0.1:{service.port}/v1"
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0, http_client=transport) as client:
        yield client


def test_a_chat(client):
    reply = client.chat.completions.create(model="echo", messages=ASK)
    assert reply.choices[0].message.content == "Say this."
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == 20


def test_a_streamed_chat(client):
    chunks = list(client.chat.completions.create(model="echo", messages=ASK, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Say this."
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].model_extra["zerolayer"]["program"] == "plain"


def test_a_stop_string(client):
    reply = client.chat.completions.create(model="echo", messages=ASK, stop=["this"])
    assert reply.choices[0].message.content == "Say "


def test_a_completion_with_logprobs(client):
    reply = client.completions.create(model="echo", prompt="abc", max_tokens=2, logprobs=1)
    assert reply.choices[0].text == "ab"
    assert reply.choices[0].logprobs.tokens == ["a", "b"]


def test_models(client):
    assert [model.id for model in client.models.list()] == ["echo"]
    assert client.models.retrieve("echo").id == "echo"


def test_many_requests_on_one_connection(client, service):
    for _ in range(5):  # complete ones: after a stream this client closes its connection itself
        client.chat.completions.create(model="echo", messages=ASK)
    assert len(service.server.connections) == 1


def test_errors_have_the_types_that_the_client_knows(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="none", messages=ASK)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="echo", messages=ASK, temperature=9)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "a" * 1000}])


def test_a_refusal_is_a_rate_limit_error_and_its_retry_is_served(client, service):
    service.hold_steps()
    with service.connect() as first, service.connect() as second:
        first.sendall(chat("a"))
        second.sendall(chat("a"))
        expect_soon(lambda: service.running() == 2)
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model="echo", messages=ASK)
        assert int(refused.value.response.headers["retry-after-ms"]) >= 1
        service.step(100)
        expect_soon(lambda: service.free_slots() == 2)
    retrying = client.with_options(max_retries=2)
    assert retrying.chat.completions.create(model="echo", messages=ASK).choices[0].message.content == "Say this."


def test_a_stream_that_fails_after_its_200_is_an_error_for_the_client(client, service):
    service.hold_steps()
    service.step(2)
    with pytest.raises(openai.APIError):  # noqa: PT012 - the error comes while the stream is read
        for chunk in client.chat.completions.create(model="echo", messages=ASK, stream=True):
            if chunk.choices[0].delta.content:
                service.engine.broken = EngineFailed("a step failed; send the request again")
                service.step(100)
    expect_soon(lambda: service.free_slots() == 2)
