"""The stock ``anthropic`` client as judge: whole and streamed messages, tools, counts, errors, retries; both HTTPs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import anthropic
import pytest
from echo_service import Service, chat, expect_soon

from zerolayer.errors import EngineFailed, Unavailable

ASK = [{"role": "user", "content": "Say this."}]


@pytest.fixture
def service(serve) -> Service:
    return serve(slots=2)


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def client(service, request) -> Iterator[anthropic.Anthropic]:
    http2 = request.param == "HTTP/2"
    transport = anthropic.DefaultHttpxClient(http1=not http2, http2=http2)
    address = f"http://127.0.0.1:{service.port}"
    with anthropic.Anthropic(base_url=address, api_key="none", max_retries=0, http_client=transport) as client:
        yield client


WEATHER = {
    "name": "weather",
    "description": "Tells it.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALLING = """I look. <tool_call>
{"name": "weather", "arguments": {"city": "Ulm"}}
</tool_call>
<tool_call>
{"name": "weather", "arguments": {"city": "Köln"}}
</tool_call>"""


def create(client: anthropic.Anthropic, **members):
    return client.messages.create(**{"model": "echo", "max_tokens": 64, "messages": ASK, **members})


def test_a_message(client):
    message = create(client)
    assert message.content[0].text == "Say this."
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("end_turn", 10, 10)
    assert message._request_id == message.id.removeprefix("msg_")


def test_raw_events(client):
    events = list(create(client, stream=True))
    assert [event.type for event in events[:2]] == ["message_start", "content_block_start"]
    assert "".join(event.delta.text for event in events if event.type == "content_block_delta") == "Say this."
    assert events[-2].usage.output_tokens == 10
    assert events[-1].type == "message_stop"


def test_the_stream_helper_collects_the_message_that_a_plain_call_gives(client):
    with client.messages.stream(model="echo", max_tokens=64, messages=ASK) as stream:
        pieces = list(stream.text_stream)
        streamed = stream.get_final_message()
    whole = create(client)
    assert "".join(pieces) == "Say this."
    assert streamed.content[0].text == whole.content[0].text
    assert (streamed.stop_reason, streamed.usage) == (whole.stop_reason, whole.usage)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_is_named(client, stream):
    if stream:
        with client.messages.stream(model="echo", max_tokens=64, messages=ASK, stop_sequences=["this"]) as events:
            message = events.get_final_message()
    else:
        message = create(client, stop_sequences=["this"])
    assert message.content[0].text == "Say "
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "this")


def test_a_count_is_what_a_call_is_billed(client):
    counted = client.messages.count_tokens(model="echo", messages=ASK, system="Be kind.")
    assert counted.input_tokens == create(client, system="Be kind.").usage.input_tokens


def call(client: anthropic.Anthropic, *, stream: bool, max_tokens: int = 256):
    asked = {"model": "echo", "max_tokens": max_tokens, "messages": [{"role": "user", "content": CALLING}]}
    if not stream:
        return client.messages.create(**asked, tools=[WEATHER])
    with client.messages.stream(**asked, tools=[WEATHER]) as events:
        return events.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_are_blocks(client, stream):
    message = call(client, stream=stream)
    text, *calls = message.content
    assert (text.type, text.text.strip(), message.stop_reason) == ("text", "I look.", "tool_use")
    assert [(block.type, block.name, block.input) for block in calls] == [
        ("tool_use", "weather", {"city": "Ulm"}),
        ("tool_use", "weather", {"city": "Köln"}),
    ]
    assert len({block.id for block in calls}) == 2
    assert all(block.id.startswith("toolu_") for block in calls)


def test_a_call_s_input_grows_with_its_tokens(client):
    with client.messages.stream(
        model="echo", max_tokens=256, messages=[{"role": "user", "content": CALLING}], tools=[WEATHER]
    ) as events:
        pieces = [event.partial_json for event in events if event.type == "input_json"]
    assert len(pieces) > 10


@pytest.mark.parametrize(("stream", "shown"), [(False, {"INVALID_JSON": '{"ci'}), (True, {})])
def test_a_call_that_was_cut_says_so(client, stream, shown):
    cut = CALLING.index("ty") - CALLING.index("I look")
    message = call(client, stream=stream, max_tokens=cut)
    assert (message.content[-1].input, message.stop_reason) == (shown, "max_tokens")


def test_a_result_goes_back_to_the_model(client):
    first = call(client, stream=False)
    calls = [block.id for block in first.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call_id, "content": "rain"} for call_id in calls]
    turns = [
        {"role": "user", "content": CALLING},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    answer = create(client, messages=turns, tools=[WEATHER])
    assert (answer.content[0].text, answer.stop_reason) == ("rain", "end_turn")


def test_a_count_with_tools_is_what_a_call_is_billed(client):
    counted = client.messages.count_tokens(model="echo", messages=ASK, tools=[WEATHER])
    assert counted.input_tokens == create(client, tools=[WEATHER]).usage.input_tokens


def test_models(client):
    assert [model.id for model in client.models.list()] == ["echo"]
    assert client.models.retrieve("echo").lifecycle == "active"


def test_the_beta_paths_are_the_same(client):
    message = client.beta.messages.create(model="echo", max_tokens=64, messages=ASK, betas=["a-2024", "b-2025"])
    assert message.content[0].text == "Say this."


def test_errors_have_the_types_that_the_client_knows(client):
    with pytest.raises(anthropic.NotFoundError) as unknown:
        create(client, model="none")
    assert (unknown.value.type, unknown.value.error_code) == ("not_found_error", "model_not_found")
    assert unknown.value.request_id
    with pytest.raises(anthropic.BadRequestError) as wrong:
        create(client, max_tokens=0)
    assert wrong.value.type == "invalid_request_error"
    assert "max_tokens" in wrong.value.api_message


def test_a_draining_service_is_overloaded(client, service):
    service.on_loop(lambda: service.server.guard.close(Unavailable("draining; send the request again")))
    with pytest.raises(anthropic.InternalServerError) as overloaded:
        create(client)
    assert (overloaded.value.status_code, overloaded.value.type) == (529, "overloaded_error")


def test_a_refusal_is_a_rate_limit_error(client, service):
    service.hold_steps()
    with service.connect() as first, service.connect() as second:
        for busy in (first, second):
            busy.sendall(chat("a"))
        expect_soon(lambda: service.running() == 2)
        with pytest.raises(anthropic.RateLimitError) as refused:
            create(client)
        assert int(refused.value.response.headers["retry-after-ms"]) >= 1


def test_a_retry_redeems_its_booking_without_knowing_of_it(serve):
    service = serve(slots=1, step_us=3000)  # 100 ms of answer hold the only slot
    address = f"http://127.0.0.1:{service.port}"
    with anthropic.Anthropic(base_url=address, api_key="none", max_retries=2) as client, service.connect() as busy:
        busy.sendall(chat("a" * 30))
        expect_soon(lambda: service.running() == 1)
        reply = create(client)
    assert reply.content[0].text == "Say this."
    assert service.on_loop(lambda: len(service.server.admission.tickets)) == 0


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_cancelling_frees_the_slot(client, service, phase):
    service.hold_steps()

    async def cancelled() -> None:
        address = f"http://127.0.0.1:{service.port}"
        async with anthropic.AsyncAnthropic(base_url=address, api_key="none", max_retries=0) as asking:
            call = asyncio.create_task(asking.messages.create(model="echo", max_tokens=64, messages=ASK))
            await asyncio.to_thread(expect_soon, lambda: service.running() == 1)
            if phase == "decode":
                service.step()
                await asyncio.to_thread(expect_soon, lambda: service.stepped() == 1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    asyncio.run(cancelled())
    expect_soon(lambda: service.running() == 0)
    service.step(2)
    expect_soon(lambda: service.free_slots() == 2)


def test_leaving_a_stream_frees_the_slot(service):
    service.hold_steps()
    threading.Timer(0.05, service.step).start()
    address = f"http://127.0.0.1:{service.port}"  # over HTTP/2 this client says nothing when it leaves one stream
    with (
        anthropic.Anthropic(base_url=address, api_key="none", max_retries=0) as client,
        client.messages.stream(model="echo", max_tokens=64, messages=ASK) as stream,
    ):
        assert next(iter(stream)).type == "message_start"
    expect_soon(lambda: service.running() == 0)


def test_a_stream_that_fails_after_its_200_is_an_error_for_the_client(client, service):
    service.hold_steps()
    service.step()
    with pytest.raises(anthropic.APIStatusError) as failed:  # noqa: PT012 - it comes while the stream is read
        for event in create(client, stream=True):
            if event.type == "content_block_delta":
                service.engine.broken = EngineFailed("a step failed; send the request again")
                service.step(100)
    assert failed.value.type == "api_error"
    expect_soon(lambda: service.free_slots() == 2)
