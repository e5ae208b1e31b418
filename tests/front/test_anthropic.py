"""Anthropic's paths on real sockets: replies, events, counts, models, refusals, and streams that fail."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from echo_model import WholeConversation
from echo_service import Reply, Service, expect_soon, get, post, read_reply

from zerolayer.errors import EngineFailed, Unavailable
from zerolayer.front.anthropic_form import MessageBody
from zerolayer.front.site import ConnectionLimits


@pytest.fixture
def service(serve) -> Service:
    return serve(slots=2)


def ask(text: Any, *headers: str, path: str = "/v1/messages", **members: Any) -> bytes:
    body = {"model": "echo", "max_tokens": 64, "messages": [{"role": "user", "content": text}], **members}
    return post(path, {name: value for name, value in body.items() if value is not None}, *headers)


def events(reply: Reply) -> list[dict[str, Any]]:
    return [json.loads(block.split("\n")[1][6:]) for block in reply.body.decode().split("\n\n") if block]


def shown(reply: Reply) -> str:
    return "".join(
        [event["delta"].get("text", "") for event in events(reply) if event["type"] == "content_block_delta"]
    )


def test_a_whole_message(service):
    reply = service.ask(ask("Say this."))
    message = reply.json
    assert (reply.status, message["content"]) == (200, [{"type": "text", "text": "Say this."}])
    assert (message["stop_reason"], message["stop_sequence"], message["model"]) == ("end_turn", None, "echo")
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (10, 10)
    assert message["zerolayer"]["max_tokens"] == 64
    assert "decode" in reply.headers["server-timing"]


def test_a_streamed_message_says_the_same(service):
    reply = service.ask(ask("Say this.", stream=True))
    found = events(reply)
    assert reply.complete
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert shown(reply) == "Say this."
    assert found[0]["message"]["usage"]["input_tokens"] == 10
    assert found[-2]["usage"]["output_tokens"] == 10
    assert found[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert found[-1]["type"] == "message_stop"


def test_a_token_is_an_event_of_its_own_in_a_write_of_its_own(service):
    service.hold_steps()
    with service.connect() as client:
        client.sendall(ask("ab", stream=True))
        service.step()
        first = client.recv(65536)
        service.step()
        second = client.recv(65536)
    assert b"message_start" in first
    assert second.count(b"content_block_delta") == 2  # the event's name and its type: one event
    assert second.startswith(b"%x\r\n" % (len(second) - second.index(b"\n") - 3))  # one chunk


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("members", "text", "reason", "sequence"),
    [
        ({"max_tokens": 3}, "Say", "max_tokens", None),
        ({"stop_sequences": ["none", "this"]}, "Say ", "stop_sequence", "this"),
        ({"stop_sequences": ["s", "is."]}, "Say thi", "stop_sequence", "s"),
        ({}, "Say this.", "end_turn", None),
    ],
)
def test_why_it_stopped(service, stream, members, text, reason, sequence):
    reply = service.ask(ask("Say this.", stream=stream, **members))
    if stream:
        assert shown(reply) == text
        assert events(reply)[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}
    else:
        message = reply.json
        assert message["content"][0]["text"] == text
        assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_answer_has_no_content(service, stream):
    reply = service.ask(ask("this", stop_sequences=["t"], stream=stream))
    if stream:
        assert [event["type"] for event in events(reply)] == ["message_start", "message_delta", "message_stop"]
    else:
        assert reply.json["content"] == []


def test_an_answer_that_fills_its_slot_says_so(serve):
    service = serve(slot_tokens=64)
    message = service.ask(ask("a" * 40, max_tokens=60)).json
    assert message["stop_reason"] == "model_context_window_exceeded"
    assert message["usage"]["output_tokens"] == 64 - 41


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_the_deadline_bounds_ends_at_max_tokens(serve, stream):
    service = serve(step_us=20_000, section={"max_tokens": 400})  # so long that a busy machine hardly stretches them
    reply = service.ask(ask("a" * 90, max_tokens=32_000, deadline_ms=1600, stream=stream))
    message = events(reply)[-2] if stream else reply.json
    assert message["zerolayer"]["max_tokens"] < 90
    assert (message["delta"] if stream else message)["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("length", [100, 5000])
def test_a_prompt_over_the_slot_is_too_long_in_the_words_that_clients_look_for(serve, length):
    reply = serve(slot_tokens=64).ask(ask("a" * length, max_tokens=16))
    assert reply.status == 400
    assert "prompt is too long" in str(reply.error["message"])


def test_the_answer_goes_on_from_a_prefill(service):
    turns = [{"role": "user", "content": "Say"}, {"role": "assistant", "content": " this."}]
    message = service.ask(ask("", messages=turns)).json
    assert message["content"][0]["text"] == "Say this."  # the echo of all that the model has read
    assert message["usage"]["input_tokens"] == 10


def test_a_prefill_outlives_the_turns_that_are_left_out(serve):
    service = serve(slot_tokens=64, context={"overflow": "truncate"}, shows=WholeConversation)
    turns = [{"role": "user", "content": "a" * 60}, {"role": "assistant", "content": "b"}]
    turns += [{"role": "user", "content": "c"}, {"role": "assistant", "content": "The end is"}]
    message = service.ask(ask("", messages=turns)).json
    assert message["content"][0]["text"].startswith("user:[TRUNCATED]\ncThe end")
    assert message["zerolayer"]["truncated_messages"] == 2


def test_system_text_comes_first_wherever_it_was_sent(serve):
    service = serve(shows=WholeConversation)
    turns = [{"role": "user", "content": "a"}, {"role": "system", "content": "c"}, {"role": "user", "content": "d"}]
    message = service.ask(ask("", system=[{"type": "text", "text": "b"}], messages=turns)).json
    assert message["content"][0]["text"] == "system:b\ncuser:a\nd"


# --- counts


CASES = [
    {},
    {"system": "Be kind."},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "größer"}]}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {"messages": [{"role": "user", "content": "x" * 5000}]},
]


@pytest.mark.parametrize("members", CASES)
def test_a_count_is_what_the_call_is_billed_streamed_or_not(serve, members):
    service = serve(slot_tokens=8192, shows=WholeConversation)
    counted = service.ask(ask("hello", path="/v1/messages/count_tokens", max_tokens=None, **members)).json
    whole = service.ask(ask("hello", max_tokens=1, **members)).json["usage"]
    start, *_, delta, _ = events(service.ask(ask("hello", max_tokens=1, stream=True, **members)))
    billed = [whole["input_tokens"], start["message"]["usage"]["input_tokens"], delta["usage"]["input_tokens"]]
    assert counted == {"input_tokens": whole["input_tokens"]}
    assert billed == [counted["input_tokens"]] * 3
    assert delta["usage"] == whole


def test_a_count_takes_no_slot(service):
    service.hold_steps()
    assert service.ask(ask("hello", path="/v1/messages/count_tokens")).status == 200
    assert service.running() == 0


# --- models


VERSION = "anthropic-version: 2023-06-01"


def test_models_are_anthropic_s_where_its_version_is_named(serve):
    service = serve(aliases=("claude", "other"))
    page = service.ask(get("/v1/models", VERSION)).json
    assert [model["id"] for model in page["data"]] == ["echo", "claude", "other"]
    assert {model["type"] for model in page["data"]} == {"model"}
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "echo", "other")
    assert service.ask(get("/v1/models")).json["object"] == "list"


@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ("limit=2", ["echo", "claude"], True),
        ("after_id=echo", ["claude", "other"], False),
        ("after_id=echo&limit=1", ["claude"], True),
        ("before_id=other", ["echo", "claude"], False),
        ("before_id=other&limit=1", ["claude"], True),
        ("after_id=nothing", [], False),
        ("lifecycle=deprecated,active&limit=1", ["echo"], True),
        ("lifecycle[]=deprecated&lifecycle[]=retired", [], False),
        ("beta=true", ["echo", "claude", "other"], False),
    ],
)
def test_models_come_in_pages(serve, query, ids, has_more):
    page = serve(aliases=("claude", "other")).ask(get(f"/v1/models?{query}", VERSION)).json
    assert ([model["id"] for model in page["data"]], page["has_more"]) == (ids, has_more)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "²", "9" * 5000])
def test_a_page_of_another_size_is_refused(service, limit):
    reply = service.ask(get(f"/v1/models?limit={limit or '%20'}".replace("²", "%C2%B2"), VERSION))
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")


def test_one_model(service):
    assert service.ask(get("/v1/models/echo", VERSION)).json["lifecycle"] == "active"
    assert service.ask(get("/v1/models/none", VERSION)).error["type"] == "not_found_error"


# --- refusals


@pytest.mark.parametrize(
    ("request_bytes", "status", "kind"),
    [
        (ask("x", temperature=2), 400, "invalid_request_error"),
        (ask("x", model="none"), 404, "not_found_error"),
        (post("/v1/messages/batches", {}), 404, "not_found_error"),
        (get("/v1/messages"), 405, "invalid_request_error"),
        (get("/v1/nothing", VERSION), 404, "not_found_error"),
        (post("/v1/messages", b"{", "content-type: text/plain"), 415, "invalid_request_error"),
        (ask("x", "origin: http://evil.example"), 403, "permission_error"),
        (ask("x", "x-zl-deadline-ms: soon"), 400, "invalid_request_error"),
        (ask("x", "x-zl-deadline-ms: 0"), 422, "invalid_request_error"),
    ],
)
def test_every_refusal_has_anthropic_s_shape(service, request_bytes, status, kind):
    reply = service.ask(request_bytes)
    assert (reply.status, reply.json["type"], reply.error["type"]) == (status, "error", kind)
    assert reply.json["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]


def test_a_body_over_the_limit_is_too_large(serve):
    service = serve(limits=ConnectionLimits(body_bytes=200))
    reply = service.ask(ask("x" * 300))
    assert (reply.status, reply.error["type"]) == (413, "request_too_large")


@pytest.mark.parametrize("stream", [False, True])
def test_every_reply_carries_its_request_id(service, stream):
    reply = service.ask(ask("x", "x-request-id: mine", stream=stream))
    assert reply.headers["request-id"] == "mine"


def test_openai_s_replies_carry_no_such_header(service):
    assert "request-id" not in service.ask(get("/v1/models")).headers


def test_key_version_and_betas_are_accepted(service):
    headers = [
        "x-api-key: k",
        VERSION,
        "anthropic-beta: a-2024,b-2025",
        "anthropic-dangerous-direct-browser-access: true",
    ]
    assert service.ask(ask("x", *headers, path="/v1/messages?beta=true")).status == 200


def test_a_busy_service_says_when_to_come_back_and_keeps_the_place(service):
    service.hold_steps()
    with service.connect() as first, service.connect() as second:
        for client in (first, second):
            client.sendall(ask("a"))
        expect_soon(lambda: service.running() == 2)
        refused = service.ask(ask("b", "x-stainless-retry-count: 0"))
        assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")
        assert int(refused.headers["retry-after-ms"]) == refused.error["retry_after_ms"] >= 1
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-should-retry"] == "true"
        assert refused.headers["x-zl-ticket"]
        service.step(100)


def test_a_service_that_takes_no_work_is_overloaded(service):
    service.on_loop(lambda: service.server.guard.close(Unavailable("draining; send the request again")))
    refused = service.ask(ask("b"))
    assert (refused.status, refused.error["type"]) == (529, "overloaded_error")
    assert int(refused.headers["retry-after-ms"]) >= 1
    assert int(refused.headers["retry-after"]) >= 1


CANARY = "sk-ant-canary-5b1e"


@pytest.mark.parametrize(
    "members",
    [
        {"temperature": CANARY},
        {"tools": [{"name": CANARY + "!", "input_schema": {}}]},
        {"tool_choice": {"type": CANARY}},
        {"system": [{"type": CANARY, "text": CANARY}]},
        {"messages": [{"role": CANARY, "content": CANARY}]},
        {"model": CANARY},
        {"stop_sequences": [CANARY] * 99},
        {"output_config": {"format": {"type": CANARY, "schema": CANARY}}},
    ],
)
def test_no_word_of_a_client_is_in_a_refusal_or_a_log(service, caplog, members):
    with caplog.at_level(logging.DEBUG):
        reply = service.ask(ask(CANARY, f"x-api-key: {CANARY}", **members))
    assert reply.status in (400, 404)
    assert CANARY.encode() not in reply.body
    assert CANARY not in caplog.text


def test_what_a_defect_cuts_is_logged_without_a_word_of_its_prompt(service, caplog, monkeypatch):
    monkeypatch.setattr(MessageBody, "finish", lambda *_: {}[CANARY])
    with caplog.at_level(logging.DEBUG):
        reply = service.ask(ask(CANARY))
    assert (reply.status, reply.error["type"]) == (500, "api_error")
    assert "KeyError" in caplog.text
    assert CANARY not in caplog.text + reply.body.decode()


# --- ends that are none


def test_a_stream_that_fails_after_its_200_has_an_error_event_and_no_end(service):
    service.hold_steps()
    with service.connect() as client:
        client.sendall(ask("abc", stream=True))
        service.step(2)
        expect_soon(lambda: service.stepped() == 2)
        service.engine.broken = EngineFailed("a step failed; send the request again")
        service.step(100)
        reply = read_reply(client)
    assert reply.status == 200
    assert not reply.complete
    assert events(reply)[-1]["error"]["type"] == "api_error"
    assert not any(event["type"] in ("message_delta", "message_stop") for event in events(reply))


def test_what_fails_before_the_first_token_has_its_own_status(service):
    service.engine.broken = EngineFailed("a step failed; send the request again")
    reply = service.ask(ask("abc", stream=True))
    assert (reply.status, reply.error["type"]) == (500, "api_error")


@pytest.mark.parametrize("steps", [0, 2])
def test_a_client_that_leaves_frees_its_slot_within_a_step(service, steps):
    service.hold_steps()
    client = service.connect()
    client.sendall(ask("abcdef", stream=True))
    expect_soon(lambda: service.running() == 1)
    for _ in range(steps):
        service.step()
    expect_soon(lambda: service.stepped() == steps)
    client.close()
    expect_soon(lambda: service.running() == 0)
    service.step(2)
    expect_soon(lambda: service.free_slots() == 2)
