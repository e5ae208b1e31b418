"""The fixed schema over HTTP: answers, streams, errors, counts and the vocabulary, read by Google's implementation."""

from __future__ import annotations

import hashlib
from array import array
from contextlib import closing

import pytest
from echo_service import chat, expect_soon, get, post, read_reply

from wire.inference_messages import message
from zerolayer.text import vocabulary_file
from zerolayer.wire.protobuf import read_varint

PROTOBUF = "content-type: application/x-protobuf"
GenerateRequest, GenerateReply, Error = message("GenerateRequest"), message("GenerateReply"), message("Error")


def body(text: str = "", **fields: object) -> bytes:
    prompt = {"messages": [{"role": 2, "content": text.encode()}]} if text else {}
    return GenerateRequest(**({"model": "echo"} | prompt | fields)).SerializeToString()


def generate(text: str = "", *headers: str, **fields: object) -> bytes:
    return post("/v1/generate", body(text, **fields), PROTOBUF, *headers)


def messages(raw: bytes) -> list[object]:
    """The messages of a streamed body."""
    found, at = [], 0
    while at < len(raw):
        size, start = read_varint(raw, at, len(raw))
        found.append(GenerateReply.FromString(raw[start : start + size]))
        at = start + size
    return found


def test_a_request_is_answered_with_one_message(serve):
    reply = serve().ask(generate("Hello, wörld"))
    answer = GenerateReply.FromString(reply.body)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/x-protobuf")
    assert (answer.text.decode(), answer.finish_reason) == ("Hello, wörld", 1)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (14, 14)
    assert answer.account.max_tokens == 498


def test_every_chosen_token_is_told_end_included(serve):
    answer = GenerateReply.FromString(serve().ask(generate("abc")).body)
    assert list(answer.token_ids) == [*b"abc", 257]


def test_a_prompt_of_token_ids_is_taken_as_it_is(serve):
    answer = GenerateReply.FromString(serve().ask(generate(token_ids=array("I", list(b"hey")).tobytes())).body)
    assert (answer.text, answer.usage.prompt_tokens) == (b"hey", 3)


def test_a_stream_has_a_message_a_step_and_the_account_in_the_last(serve):
    reply = serve().ask(generate("日x", stream=True))
    parts = messages(reply.body)
    assert reply.complete
    assert reply.headers["content-type"] == "application/x-protobuf; delimited=true"
    assert [part.text.decode() for part in parts] == ["", "", "日", "x", ""]
    assert [len(part.token_ids) for part in parts] == [1] * 5
    assert [part.finish_reason for part in parts] == [0, 0, 0, 0, 1]
    assert [part.HasField("usage") for part in parts] == [False] * 4 + [True]


def test_the_stages_of_the_account_are_those_of_the_request(serve):
    stages = messages(serve().ask(generate("abc", stream=True)).body)[-1].account.stages
    assert stages.prefill + stages.decode > 0


def test_a_stop_string_ends_the_text_and_not_the_list_of_tokens(serve):
    answer = GenerateReply.FromString(serve().ask(generate("one STOP two", stop=["STOP"])).body)
    assert (answer.text, bytes(answer.token_ids)) == (b"one ", b"one STOP")


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_come_with_the_text_that_their_tokens_complete(serve, stream):
    raw = serve().ask(generate("é", top_logprobs=0, stream=stream)).body
    parts = messages(raw) if stream else [GenerateReply.FromString(raw)]
    assert [entry.logprob for part in parts if part.text for entry in part.logprobs] == [-0.5, -0.5]


def test_max_tokens_ends_with_length(serve):
    answer = GenerateReply.FromString(serve().ask(generate("abcdef", max_tokens=3)).body)
    assert (answer.text, answer.finish_reason) == (b"abc", 2)


# --- errors


def test_an_error_is_a_message_that_names_the_field(serve):
    reply = serve().ask(generate("a", top_k=2**31))
    error = Error.FromString(reply.body)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/x-protobuf")
    assert (error.code, error.param, error.status) == ("invalid_request", "top_k", 400)


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [
        ({"token_ids": array("I", [10**6]).tobytes()}, "token_ids"),
        ({"token_ids": array("I", [1] * 600).tobytes()}, "token_ids"),
        ({"token_ids": b"abc"}, "token_ids"),
        ({"text": "a" * 600}, "messages"),
        ({"text": "a", "max_age_ms": 5}, "max_age_ms"),
    ],
)
def test_a_field_is_blamed_by_its_own_name_wherever_its_limit_is_kept(serve, fields, blamed):
    assert Error.FromString(serve().ask(generate(**fields)).body).param == blamed


def test_an_error_is_json_for_who_accepts_json(serve):
    reply = serve().ask(generate("a", "accept: application/json", top_k=2**31))
    assert (reply.status, reply.error["param"]) == (400, "top_k")


def test_bytes_that_are_no_message_cost_a_400(serve):
    reply = serve().ask(post("/v1/generate", b"\x0a\xff", PROTOBUF))
    assert (reply.status, Error.FromString(reply.body).code) == (400, "invalid_request")


def test_an_unknown_model_is_not_found(serve):
    assert serve().ask(generate("a", model="other")).status == 404


def test_a_busy_service_says_when_to_come_back(serve):
    service = serve(slots=1)
    service.hold_steps()
    with closing(service.connect()) as first:
        first.sendall(chat("long"))
        expect_soon(lambda: service.running() == 1)
        reply = service.ask(generate("a"))
        assert reply.status == 429
        assert Error.FromString(reply.body).retry_after_ms == int(reply.headers["retry-after-ms"])
        service.step(100)
        read_reply(first)


def test_the_deadline_of_a_message_is_applied_and_told(serve):
    assert serve().ask(generate("a", deadline_ms=1500)).headers["x-zl-deadline-ms"].startswith("1500;")


def test_the_stamps_of_a_message_are_checked(serve):
    reply = serve().ask(generate("a", event_time_ms=5, max_age_ms=1000))
    assert (reply.status, Error.FromString(reply.body).code) == (409, "stale_input")


def test_a_stream_that_fails_ends_with_an_error_and_without_its_last_chunk(serve):
    service = serve()
    service.hold_steps()
    with closing(service.connect()) as client:
        client.sendall(generate("abcdef", stream=True))
        expect_soon(lambda: service.running() == 1)
        service.step(2)
        from zerolayer.errors import EngineFailed

        client.recv(1, 2)  # the first message is out
        service.engine.broken = EngineFailed("broken")
        service.step(5)
        reply = read_reply(client)
    assert not reply.complete
    assert messages(reply.body)[-1].error.code == "engine_failed"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/protobuf"])
def test_only_messages_may_be_posted(serve, content_type):
    assert serve().ask(post("/v1/generate", body("a"), f"content-type: {content_type}")).status == 415


def test_the_json_routes_take_no_messages(serve):
    assert serve().ask(post("/v1/chat/completions", b"{}", PROTOBUF)).status == 415


# --- counting


def test_tokens_are_counted_without_a_slot(serve):
    service = serve(slots=1)
    service.hold_steps()
    with closing(service.connect()) as first:
        first.sendall(chat("long"))
        expect_soon(lambda: service.running() == 1)
        reply = service.ask(post("/v1/count_tokens", body("abc"), PROTOBUF))
        service.step(100)
        read_reply(first)
    count = message("CountTokensReply").FromString(reply.body)
    assert (count.prompt_tokens, count.slot_tokens) == (4, 512)


@pytest.mark.parametrize(
    ("members", "tokens"), [({"messages": [{"role": "user", "content": "abc"}]}, 4), ({"prompt": "abc"}, 3)]
)
def test_tokens_of_a_json_body_are_counted(serve, members, tokens):
    reply = serve().ask(post("/v1/count_tokens", {"model": "echo"} | members))
    assert reply.json == {"prompt_tokens": tokens, "slot_tokens": 512}


def test_a_long_text_is_counted_aside(serve):
    reply = serve(slot_tokens=8192).ask(post("/v1/count_tokens", {"model": "echo", "prompt": "x" * 5000}))
    assert reply.json["prompt_tokens"] == 5000


@pytest.mark.parametrize(("members", "status"), [({"model": "other", "prompt": "a"}, 404), ({"prompt": "a"}, 400)])
def test_what_cannot_run_is_not_counted(serve, members, status):
    assert serve().ask(post("/v1/count_tokens", members)).status == status


def test_counts_of_a_client_that_left_are_dropped(serve):
    service = serve(slot_tokens=8192)
    client = service.connect()
    client.sendall(post("/v1/count_tokens", {"model": "echo", "prompt": "x" * 5000}))
    client.close()
    assert service.ask(post("/v1/count_tokens", {"model": "echo", "prompt": "abc"})).status == 200


# --- the vocabulary


def test_the_vocabulary_is_what_the_server_uses(serve):
    service = serve()
    reply = service.ask(get("/v1/models/echo/vocabulary"))
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["etag"] == f'"{hashlib.sha256(reply.body).hexdigest()}"'
    assert vocabulary_file.unpack(reply.body).pieces == service.loaded.vocabulary.pieces


@pytest.mark.parametrize("held", ["{etag}", '"other", {etag}', "W/{etag}", "*"])
def test_who_has_the_vocabulary_already_gets_304(serve, held):
    service = serve()
    etag = service.ask(get("/v1/models/echo/vocabulary")).headers["etag"]
    reply = service.ask(get("/v1/models/echo/vocabulary", f"if-none-match: {held.format(etag=etag)}"))
    assert (reply.status, reply.headers["etag"], reply.body) == (304, etag, b"")


def test_another_vocabulary_is_sent_whole(serve):
    assert serve().ask(get("/v1/models/echo/vocabulary", 'if-none-match: "other"')).status == 200


def test_an_unknown_model_has_no_vocabulary(serve):
    assert serve().ask(get("/v1/models/other/vocabulary")).status == 404
