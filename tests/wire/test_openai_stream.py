"""Streams are parsed back as server-sent events and judged by the types of the stock ``openai`` package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from zerolayer.errors import EngineFailed
from zerolayer.wire.openai_logprobs import LogprobWriter
from zerolayer.wire.openai_stream import StreamWriter
from zerolayer.wire.schema import Account, Alternative, FinishReason, Route, TokenLogprob, Usage

ACCOUNT = Account({"read": 12, "decode": 3400}, "greedy", 64, 60_000)
USAGE = Usage(7, 3)
PIECES = [b"Hel", b"lo", b"\xe2\x82", b"\xac"]
ROUTES = pytest.mark.parametrize("route", [Route.CHAT, Route.COMPLETIONS])
TEXTS = st.lists(st.text(st.characters(codec="utf-8")), max_size=5)


def writer(route: Route, include_usage: bool = False) -> StreamWriter:
    return StreamWriter(route, "r1", 1_700_000_000, "m", include_usage)


def stream(route: Route, texts: list[str], include_usage: bool = False) -> bytes:
    events = writer(route, include_usage)
    parts = [events.open(), *map(events.delta, texts), events.finish(FinishReason.LENGTH, ACCOUNT)]
    return b"".join([*parts, events.usage(USAGE), events.done()])


def data(raw: bytes) -> list[str]:
    """Server-sent events as the standard has them: "data: " lines, an empty line after each event."""
    assert raw.endswith(b"\n\n") or not raw
    blocks = raw.decode("utf-8").split("\n\n")[:-1]
    assert all(block.startswith("data: ") and "\n" not in block and "\r" not in block for block in blocks)
    return [block.removeprefix("data: ") for block in blocks]


def objects(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(item) for item in data(raw) if item != "[DONE]"]


def text_of(event: dict[str, Any]) -> str:
    choice = event["choices"][0]
    return choice["text"] if "text" in choice else choice["delta"].get("content", "")


@ROUTES
@given(texts=TEXTS)
def test_the_deltas_joined_are_the_text(route: Route, texts: list[str]) -> None:
    events = objects(stream(route, texts))
    assert "".join(map(text_of, events)) == "".join(texts)


@given(TEXTS, st.booleans())
def test_every_chat_event_is_a_chunk_of_the_openai_package(texts: list[str], include_usage: bool) -> None:
    for event in objects(stream(Route.CHAT, texts, include_usage)):
        assert ChatCompletionChunk.model_validate(event, strict=True).object == "chat.completion.chunk"


def test_every_completion_event_with_a_choice_is_a_completion_of_the_openai_package() -> None:
    events = objects(stream(Route.COMPLETIONS, ["a", "b"]))
    assert [event["object"] for event in events] == ["text_completion"] * 3
    last = Completion.model_validate(events[-1], strict=True)
    assert last.choices[0].finish_reason == "length"


@ROUTES
def test_all_events_agree_on_id_time_model_and_fingerprint(route: Route) -> None:
    identities = {
        (event["id"], event["created"], event["model"], event["system_fingerprint"])
        for event in objects(stream(route, ["a", "b"], include_usage=True))
    }
    prefix = "chatcmpl" if route is Route.CHAT else "cmpl"
    assert identities == {(f"{prefix}-r1", 1_700_000_000, "m", "fp_zerolayer")}


def test_a_chat_begins_with_the_role_and_no_text() -> None:
    (event,) = objects(writer(Route.CHAT).open())
    choice = event["choices"][0]
    assert (choice["delta"]["role"], choice["delta"]["content"], choice["finish_reason"]) == ("assistant", "", None)


def test_only_the_first_chat_event_names_the_role() -> None:
    roles = ["role" in event["choices"][0]["delta"] for event in objects(stream(Route.CHAT, ["a", "b"]))]
    assert roles == [True, False, False, False]


def test_a_completion_begins_with_its_text() -> None:
    assert writer(Route.COMPLETIONS).open() == b""


@ROUTES
def test_no_event_is_sent_for_no_text(route: Route) -> None:
    assert writer(route).delta("") == b""


@ROUTES
def test_only_the_last_choice_has_a_finish_reason(route: Route) -> None:
    reasons = [event["choices"][0]["finish_reason"] for event in objects(stream(route, ["a"]))]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]


@ROUTES
def test_the_event_with_the_finish_reason_carries_the_account(route: Route) -> None:
    events = objects(stream(route, ["a"]))
    assert ["zerolayer" in event for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["zerolayer"] == {
        "stages_us": {"read": 12, "decode": 3400},
        "program": "greedy",
        "max_tokens": 64,
        "deadline_ms": 60_000,
    }


@ROUTES
def test_usage_comes_last_with_no_choice_and_is_null_before(route: Route) -> None:
    events = objects(stream(route, ["a"], include_usage=True))
    assert [event["usage"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert (events[-1]["choices"], events[-1]["usage"]["total_tokens"]) == ([], 10)


@ROUTES
def test_without_being_asked_no_event_mentions_usage(route: Route) -> None:
    assert b"usage" not in stream(route, ["a"])


@ROUTES
def test_a_complete_stream_ends_with_done(route: Route) -> None:
    assert data(stream(route, ["a"]))[-1] == "[DONE]"


@ROUTES
def test_an_error_is_an_event_of_its_own(route: Route) -> None:
    (event,) = objects(writer(route).error(EngineFailed("a step failed; send the request again")))
    assert event == {
        "error": {
            "message": "a step failed; send the request again",
            "type": "server_error",
            "param": None,
            "code": "engine_failed",
            "help": "docs/troubleshooting.md#engine_failed",
        }
    }


@ROUTES
@given(name=st.text(st.characters(codec="utf-8")))
def test_any_model_name_and_request_id_stay_inside_their_strings(route: Route, name: str) -> None:
    events = StreamWriter(route, name, 1, name, False)
    (event,) = objects(events.delta("a"))
    assert event["model"] == name
    assert event["id"].endswith(name)


@ROUTES
def test_usage_so_far_is_in_every_event_that_has_text_where_asked_for(route: Route) -> None:
    events = writer(route)
    raw = b"".join([
        events.open(), *[events.delta(text, usage=Usage(7, count)) for count, text in enumerate("abc", 1)],
        events.finish(FinishReason.LENGTH, ACCOUNT, Usage(7, 3)),
    ])  # fmt: skip
    counts = [event["usage"]["completion_tokens"] for event in objects(raw) if event.get("usage")]
    assert counts == [1, 2, 3, 3]


@ROUTES
def test_every_event_of_an_answer_has_its_number(route: Route) -> None:
    events = StreamWriter(route, "r1", 1, "m", False, index=3)
    raw = events.open() + events.delta("a") + events.finish(FinishReason.STOP, ACCOUNT)
    assert {event["choices"][0]["index"] for event in objects(raw)} == {3}


def test_an_echo_comes_with_the_log_probabilities_of_the_prompt() -> None:
    events = writer(Route.COMPLETIONS)
    echo, delta = objects(
        events.echo("loHel", LOGPROBS[:1], PIECES.__getitem__, first=1)
        + events.delta("lo", LOGPROBS[3:], PIECES.__getitem__)
    )
    assert echo["choices"][0]["logprobs"]["token_logprobs"] == [None, -0.5]
    assert delta["choices"][0]["logprobs"]["text_offset"] == [5]


# --- log probabilities

LOGPROBS = [
    TokenLogprob(0, -0.5, (Alternative(0, -0.5),)),
    TokenLogprob(2, -1.0),
    TokenLogprob(3, -1.5),
    TokenLogprob(1, -2.0),
]


def streamed_logprobs(route: Route) -> Iterator[dict[str, Any]]:
    events = writer(route)
    for text, tokens in (("Hel", LOGPROBS[:1]), ("€", LOGPROBS[1:3]), ("lo", LOGPROBS[3:])):
        (event,) = objects(events.delta(text, tokens, PIECES.__getitem__))
        yield event["choices"][0]["logprobs"]


def complete_logprobs(route: Route) -> Any:
    return json.loads(LogprobWriter(route).render(LOGPROBS, PIECES.__getitem__))


def test_streamed_chat_logprobs_joined_are_those_of_the_complete_reply() -> None:
    pieces = list(streamed_logprobs(Route.CHAT))
    assert [entry for piece in pieces for entry in piece["content"]] == complete_logprobs(Route.CHAT)["content"]


@pytest.mark.parametrize("name", ["tokens", "token_logprobs", "top_logprobs", "text_offset"])
def test_streamed_completion_logprobs_joined_are_those_of_the_complete_reply(name: str) -> None:
    pieces = list(streamed_logprobs(Route.COMPLETIONS))
    assert [entry for piece in pieces for entry in piece[name]] == complete_logprobs(Route.COMPLETIONS)[name]


def test_text_offsets_count_whole_characters() -> None:
    assert complete_logprobs(Route.COMPLETIONS)["text_offset"] == [0, 3, 3, 4]


def test_logprobs_without_text_are_an_event() -> None:
    (event,) = objects(writer(Route.CHAT).delta("", LOGPROBS[:1], PIECES.__getitem__))
    assert len(event["choices"][0]["logprobs"]["content"]) == 1
