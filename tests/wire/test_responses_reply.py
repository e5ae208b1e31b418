"""Responses are parsed back as server-sent events and judged by the types of the stock ``openai`` package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from zerolayer.errors import EngineFailed, SlotsBusy
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.responses import decode_response
from zerolayer.wire.responses_reply import ResponseWriter
from zerolayer.wire.schema import Account, Alternative, CallDelta, FinishReason, TokenLogprob, Usage

ACCOUNT = Account({"read": 12}, "greedy", 64, 60_000)
USAGE = Usage(7, 3, 2)
TOLD = decode_response(b'{"model":"m","input":"x","instructions":"i"}', BodyLimits()).told
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CALL = [CallDelta(0, "call_1", "f"), CallDelta(0, arguments='{"a"'), CallDelta(0, arguments=":1}")]


def writer(**members: Any) -> ResponseWriter:
    return ResponseWriter("r1", 1_700_000_000, "m", TOLD, members.get("token_bytes"))


def events(raw: bytes) -> list[dict[str, Any]]:
    found = []
    for block in raw.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def stream(*texts: str, reason: FinishReason = FinishReason.STOP) -> list[dict[str, Any]]:
    response = writer()
    raw = response.open() + b"".join([response.text(text, ()) for text in texts])
    return events(raw + response.finish(reason, USAGE, ACCOUNT))


def names(found: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in found]


def test_the_order_of_a_text() -> None:
    assert names(stream("a", "b")) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


def test_the_order_of_a_call() -> None:
    response = writer()
    found = events(response.open() + response.calls(CALL) + response.finish(FinishReason.TOOL_CALLS, USAGE, ACCOUNT))
    assert names(found)[2:] == [
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done", "completed",
    ]  # fmt: skip
    (call,) = found[-1]["response"]["output"]
    assert (call["type"], call["call_id"], call["name"], call["arguments"]) == (
        "function_call",
        "call_1",
        "f",
        '{"a":1}',
    )


def test_items_are_numbered_and_each_event_names_its_own() -> None:
    response = writer()
    second = [CallDelta(1, "call_2", "g", "{}")]
    raw = response.open() + response.text("a", ()) + response.calls([*CALL, *second])
    found = events(raw + response.finish(FinishReason.TOOL_CALLS, USAGE, ACCOUNT))
    done = [event for event in found if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in done] == [0, 1, 2]
    assert [event["item"] for event in done] == found[-1]["response"]["output"]
    for event in found:
        if "item_id" in event:
            assert event["item_id"] == done[event["output_index"]]["item"]["id"]


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=4), st.sampled_from(list(FinishReason)))
@settings(deadline=None)  # the package's types are built when the first event is judged
def test_every_event_is_one_of_the_openai_package(texts: list[str], reason: FinishReason) -> None:
    found = stream(*texts, reason=reason)
    for number, event in enumerate(found):
        EVENT.validate_python(event)
        assert event["sequence_number"] == number
    deltas = [event["delta"] for event in found if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "".join(texts) == found[-1]["response"]["output"][0]["content"][0]["text"]


def test_what_ran_out_of_tokens_is_incomplete() -> None:
    last = stream("a", reason=FinishReason.LENGTH)[-1]
    assert last["type"] == "response.incomplete"
    response = last["response"]
    assert response["status"] == response["output"][0]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_the_body_is_the_last_event_s_response() -> None:
    response = writer()
    response.text("a", ())
    body = json.loads(response.body(FinishReason.STOP, USAGE, ACCOUNT))
    assert body == stream("a")[-1]["response"]
    Response.model_validate(body)


def test_usage_and_account_are_told() -> None:
    response = stream("a")[-1]["response"]
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == 2
    counts = [response["usage"][name] for name in ("input_tokens", "output_tokens", "total_tokens")]
    assert (counts, response["zerolayer"]["program"]) == ([7, 3, 10], "greedy")


@pytest.mark.parametrize(
    ("error", "code"),
    [(EngineFailed("a step failed"), "server_error"), (SlotsBusy("x", retry_after_ms=1), "rate_limit_exceeded")],
)
def test_a_failure_is_response_failed_with_what_there_was(error: Any, code: str) -> None:
    response = writer()
    found = events(response.open() + response.text("a", ()) + response.fail(error))
    last = EVENT.validate_python(found[-1])
    assert (last.type, last.response.status, last.response.error.code) == ("response.failed", "failed", code)
    assert last.response.output_text == "a"
    assert [event["sequence_number"] for event in found] == [0, 1, 2, 3, 4, found[-1]["sequence_number"]]


def test_log_probabilities_are_beside_their_text_and_in_the_whole() -> None:
    response = writer(token_bytes=[b"a", b"b"].__getitem__)
    scores = [TokenLogprob(0, -0.5, (Alternative(1, -1.0),))]
    found = events(response.open() + response.text("a", scores) + response.finish(FinishReason.STOP, USAGE, ACCOUNT))
    entry = {
        "token": "a", "bytes": [97], "logprob": -0.5,
        "top_logprobs": [{"token": "b", "bytes": [98], "logprob": -1.0}],
    }  # fmt: skip
    assert next(event for event in found if event["type"] == "response.output_text.delta")["logprobs"] == [entry]
    assert found[-1]["response"]["output"][0]["content"][0]["logprobs"] == [entry]
