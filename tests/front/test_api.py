"""The service as a client sees it: replies, headers, errors."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from echo_service import chat, get, post, read_reply

STAGES = ["read", "parse", "guard", "tokenise", "wait", "prefill", "decode", "frame", "write"]


def test_a_chat_is_answered_with_text_usage_and_account(serve):
    reply = serve().ask(chat("Hello, wörld"))
    assert reply.status == 200
    assert reply.json["choices"][0]["message"]["content"] == "Hello, wörld"
    assert reply.json["choices"][0]["finish_reason"] == "stop"
    assert reply.json["usage"]["prompt_tokens"] == 14
    assert reply.json["zerolayer"]["max_tokens"] == 498
    assert list(reply.json["zerolayer"]["stages_us"]) == STAGES


def test_a_streamed_chat_has_the_same_text_one_account_and_a_clean_end(serve):
    reply = serve().ask(chat("Hello, wörld", stream=True))
    assert reply.complete
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.text == "Hello, wörld"
    assert reply.events[-1] == "[DONE]"
    assert [event["choices"][0]["finish_reason"] for event in reply.events[:-1] if "zerolayer" in event] == ["stop"]


def test_a_stream_never_splits_a_character(serve):
    events = serve().ask(chat("日本語🙂", stream=True)).events
    texts = [event["choices"][0]["delta"].get("content") for event in events[:-1]]
    assert [text for text in texts if text] == ["日", "本", "語", "🙂"]


def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(serve):
    events = serve().ask(chat("abc", stream=True, stream_options={"include_usage": True})).events
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_is_cut_although_it_crosses_tokens(serve, stream):
    service = serve()
    reply = service.ask(chat("one STOP two", stop=["STOP"], stream=stream))
    text = reply.text if stream else reply.json["choices"][0]["message"]["content"]
    assert text == "one "


def test_max_tokens_ends_with_length(serve):
    reply = serve().ask(chat("abcdef", max_tokens=3))
    assert reply.json["choices"][0]["message"]["content"] == "abc"
    assert reply.json["choices"][0]["finish_reason"] == "length"


def test_logprobs_are_beside_their_text(serve):
    reply = serve().ask(chat("ab", logprobs=True))
    assert [entry["token"] for entry in reply.json["choices"][0]["logprobs"]["content"]] == ["a", "b"]


def test_streamed_logprobs_leave_with_the_text_that_they_complete(serve):
    events = serve().ask(chat("é", logprobs=True, stream=True)).events
    entries = [event["choices"][0]["logprobs"] for event in events[:-1] if event["choices"][0]["delta"].get("content")]
    assert [len(entry["content"]) for entry in entries] == [2]


def test_a_completion_echoes_its_prompt_when_asked(serve):
    body = {"model": "echo", "prompt": "abc", "max_tokens": 2, "echo": True}
    assert serve().ask(post("/v1/completions", body)).json["choices"][0]["text"] == "abcab"


def test_a_streamed_completion_of_token_ids_echoes_their_text(serve):
    body = {"model": "echo", "prompt": [97, 98], "max_tokens": 1, "echo": True, "stream": True}
    assert serve().ask(post("/v1/completions", body)).text == "aba"


def test_every_reply_carries_the_common_headers(serve):
    service = serve()
    for request in (get("/livez"), get("/nothing"), chat("a"), chat("a", stream=True), b"rubbish\r\n\r\n"):
        headers = service.ask(request).headers
        assert headers["server"].startswith("zerolayer/")
        assert re.fullmatch(r"\d+\.\d{6}", headers["x-server-time"])
        assert headers["x-request-id"]
        assert re.fullmatch(r"free=\d+;next_ms=\d+;derate=1\.00;epoch=0", headers["x-zl-load"])


def test_a_request_id_is_taken_over_when_it_is_short_visible_ascii(serve):
    service = serve()
    assert service.ask(get("/livez", "x-request-id: mine-1")).headers["x-request-id"] == "mine-1"
    assert service.ask(get("/livez", "x-request-id: " + "a" * 129)).headers["x-request-id"] != "a" * 129
    assert service.ask(get("/livez", "x-request-id: two words")).headers["x-request-id"] != "two words"


def test_complete_replies_carry_server_timing_in_the_standards_form(serve):
    reply = serve().ask(chat("abc"))
    metric = re.compile(r"([a-z]+);dur=(\d+\.\d{3})")
    parsed = [metric.fullmatch(part).groups() for part in reply.headers["server-timing"].split(", ")]
    assert [name for name, _ in parsed] == STAGES
    told = {name: round(float(duration) * 1000) for name, duration in parsed}
    assert told == reply.json["zerolayer"]["stages_us"]


def test_models_are_listed_and_found_by_name_and_alias(serve):
    service = serve()
    assert [card["id"] for card in service.ask(get("/v1/models")).json["data"]] == ["echo"]
    assert service.ask(get("/v1/models/echo")).json["max_model_len"] == 512
    assert service.ask(get("/v1/models/other")).error["code"] == "model_not_found"


def test_health_is_told_on_both_listeners(serve):
    service = serve()
    for port in (service.port, service.server.admin_port):
        assert [service.ask(get(path), port).status for path in ("/livez", "/readyz", "/health")] == [200, 200, 200]


def test_head_is_get_without_a_body(serve):
    service = serve()
    with service.connect() as client:
        client.sendall(get("/readyz", "connection: close", method="HEAD"))
        received = b"".join(iter(lambda: client.recv(4096), b""))
    assert received.endswith(b"\r\n\r\n")
    assert b"content-length: 18\r\n" in received


def test_metrics_have_vllms_names_and_count_what_ran(serve):
    service = serve()
    service.ask(chat("abc"))
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    assert 'vllm:prompt_tokens_total{model_name="echo"} 4' in page
    assert 'vllm:generation_tokens_total{model_name="echo"} 4' in page
    assert 'vllm:request_success_total{model_name="echo",finished_reason="stop"} 1' in page
    assert 'vllm:time_to_first_token_seconds_count{model_name="echo"} 1' in page


def test_metrics_count_the_heartbeats_of_every_program(serve):
    service = serve()
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    assert int(re.search(r"zerolayer:heartbeats_total\{.*\} (\d+)", page)[1]) >= 3
    assert re.findall(r'programs_dropped_total\{.*program="(\w+)"\} 0', page) == ["full", "greedy", "plain"]


def test_metrics_are_not_on_the_service_listener(serve):
    assert serve().ask(get("/metrics")).status == 404


TOO_LONG = "context_length_exceeded"
WRONG = [
    (b"{", 400, "invalid_request"),
    (b"\xff\xfe", 400, "invalid_request"),
    (b"[1]", 400, "invalid_request"),
    ({"model": "echo", "messages": "text"}, 400, "invalid_request"),
    ({"model": "echo", "messages": []}, 400, "invalid_request"),
    ({"model": "echo", "messages": [{"role": "user", "content": "a"}], "temperature": 3}, 400, "invalid_request"),
    ({"model": "echo", "messages": [{"role": "user", "content": "a"}], "max_tokens": -1}, 400, "invalid_request"),
    ({"model": "echo", "messages": [{"role": "user", "content": "a"}], "max_tokens": "5"}, 400, "invalid_request"),
    ({"model": "echo", "messages": [{"role": "user", "content": "a"}], "top_p": -1}, 400, "invalid_request"),
    ({"model": "none", "messages": [{"role": "user", "content": "a"}]}, 404, "model_not_found"),
    ({"model": "echo", "messages": [{"role": "user", "content": "a" * 600}]}, 422, "infeasible"),
    ({"model": "echo", "messages": [{"role": "user", "content": "a" * 511}]}, 400, TOO_LONG),
    ({"model": "echo", "messages": [{"role": "user", "content": "a"}], "max_tokens": 511}, 400, TOO_LONG),
]


@pytest.mark.parametrize(("body", "status", "code"), WRONG)
def test_a_bad_body_is_one_clear_error_and_costs_no_slot(serve, body, status, code):
    service = serve()
    reply = service.ask(post("/v1/chat/completions", body))
    assert (reply.status, reply.error["code"]) == (status, code)
    assert reply.error["message"]
    assert service.free_slots() == 4
    assert service.ask(chat("still here")).status == 200


def test_capacity_exactly_is_served_and_one_more_is_refused(serve):
    service = serve()
    assert service.ask(chat("a", max_tokens=510)).status == 200
    assert service.ask(chat("a", max_tokens=511)).status == 400


def test_token_ids_outside_the_vocabulary_are_refused(serve):
    reply = serve().ask(post("/v1/completions", {"model": "echo", "prompt": [1, 258]}))
    assert (reply.status, reply.error["param"]) == (400, "prompt")


def test_an_empty_prompt_is_refused_when_the_model_has_no_first_token(serve):
    reply = serve().ask(post("/v1/completions", {"model": "echo", "prompt": ""}))
    assert (reply.status, reply.error["param"]) == (400, "prompt")


def test_an_unknown_path_and_method_are_told_in_openais_shape(serve):
    service = serve()
    assert service.ask(get("/v2/chat")).error["code"] == "not_found"
    reply = service.ask(get("/v1/chat/completions"))
    assert (reply.status, reply.headers["allow"], reply.error["code"]) == (405, "POST", "method_not_allowed")


def test_options_of_the_whole_server_name_its_methods(serve):
    """RFC 9110 section 9.3.7; the connection goes on."""
    with closing(serve().connect()) as client:
        for _ in range(2):
            client.sendall(get("*", method="OPTIONS"))
            reply = read_reply(client)
            assert (reply.status, reply.body, reply.headers["allow"]) == (204, b"", "DELETE, GET, HEAD, OPTIONS, POST")


def test_no_other_method_has_the_whole_server_as_its_target(serve):
    assert serve().ask(get("*")).status == 400


def test_an_announced_oversize_body_is_refused_before_it_is_read(serve):
    service = serve()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    reply = service.ask(head + b"content-length: 99999999\r\n\r\n")
    assert (reply.status, reply.error["code"], reply.headers["connection"]) == (413, "request_too_large", "close")


def test_an_oversize_head_is_refused(serve):
    reply = serve().ask(get("/livez", "x-long: " + "a" * 70_000))
    assert (reply.status, reply.error["code"]) == (431, "headers_too_large")


def test_rubbish_is_one_clear_error(serve):
    reply = serve().ask(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert (reply.status, reply.headers["connection"]) == (400, "close")


def test_an_error_never_repeats_the_prompt(serve):
    service = serve()
    for text in ("secret" * 100, "secret"):
        reply = service.ask(chat(text, max_tokens=511))
        assert reply.status >= 400
        assert b"secret" not in reply.body


def test_expect_continue_is_answered_before_the_body(serve):
    service = serve()
    request = chat("abc", "expect: 100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    with service.connect() as client:
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_an_http_1_0_client_gets_a_stream_without_chunks(serve):
    service = serve()
    request = chat("abc", stream=True).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    with service.connect() as client:
        client.sendall(request)
        received = b"".join(iter(lambda: client.recv(4096), b""))
    assert b"transfer-encoding" not in received
    assert received.endswith(b"data: [DONE]\n\n")
