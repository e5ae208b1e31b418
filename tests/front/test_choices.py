"""Requests with several answers, several prompts, or nothing but the prompt; on real sockets."""

from __future__ import annotations

import pytest
from echo_service import Service, chat, expect_soon, post, read_reply

from zerolayer.errors import EngineFailed


def completion(prompt: object, **members: object) -> bytes:
    return post("/v1/completions", {"model": "echo", "prompt": prompt, **members})


def test_answers_are_numbered_and_the_prompt_is_counted_once(serve):
    reply = serve().ask(chat("abc", n=3)).json
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in reply["choices"]} == {"abc"}
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (4, 12)


def test_each_prompt_has_its_answers(serve):
    choices = serve().ask(completion(["ab", "cde"], n=2)).json["choices"]
    assert [(choice["index"], choice["text"]) for choice in choices] == [(0, "ab"), (1, "ab"), (2, "cde"), (3, "cde")]


@pytest.mark.parametrize("prompts", [["ab", "c"], [[97, 98], [99]]])
def test_prompts_are_texts_or_lists_of_ids(serve, prompts):
    choices = serve().ask(completion(prompts)).json["choices"]
    assert [choice["text"] for choice in choices] == ["ab", "c"]


def test_streamed_answers_interleave_and_each_is_whole(serve):
    reply = serve().ask(chat("abcd", n=2, stream=True, stream_options={"include_usage": True}))
    events = [event for event in reply.events if event != "[DONE]"]
    assert (reply.complete, reply.events[-1]) == (True, "[DONE]")
    texts, reasons, order = ["", ""], [], []
    for event in events[:-1]:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content") or ""
        reasons += [choice["index"]] if choice["finish_reason"] else []
        order.append(choice["index"])
    assert (texts, sorted(reasons)) == (["abcd", "abcd"], [0, 1])
    assert order != sorted(order)
    assert (events[-1]["choices"], events[-1]["usage"]["completion_tokens"]) == ([], 10)
    assert len({event["id"] for event in events}) == 1


def test_all_slots_or_none(serve):
    service = serve(slots=2)
    service.hold_steps()
    with service.connect() as first:
        first.sendall(chat("a"))
        expect_soon(lambda: service.running() == 1)
        refused = service.ask(chat("ab", n=2))
        assert (refused.status, refused.error["code"]) == (429, "slots_busy")
        assert int(refused.headers["retry-after-ms"]) >= 1
        assert "x-zl-ticket" not in refused.headers
        assert service.free_slots() == 1
        service.step(100)
        expect_soon(lambda: service.free_slots() == 2)
    assert service.ask(chat("ab", n=2)).status == 200


def test_a_client_that_leaves_frees_all_its_slots(serve):
    service = serve()
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("abc", n=3))
        expect_soon(lambda: service.running() == 3)
    expect_soon(lambda: service.running() == 0)
    service.step(100)
    expect_soon(lambda: service.free_slots() == 4)


@pytest.mark.parametrize("stream", [False, True])
def test_one_answer_that_fails_ends_the_reply_as_failed(serve, stream):
    service = serve()
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("abcdefghij", n=2, stream=stream))
        expect_soon(lambda: service.running() == 2)
        service.step(4)
        expect_soon(lambda: service.stepped() == 4)
        service.engine.broken = EngineFailed("a step failed; send the request again")
        service.step(100)
        reply = read_reply(client)
    assert (reply.status, reply.complete) == ((200, False) if stream else (500, True))
    assert (b"engine_failed" in reply.body, b"[DONE]" in reply.body) == (True, False)
    service.engine.broken = None
    expect_soon(lambda: service.free_slots() == 4)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_stops_early_does_not_end_the_others(serve, stream):
    reply = serve().ask(completion(["aSTOPb", "cd"], stop="STOP", stream=stream))
    if stream:
        texts = {0: "", 1: ""}
        for event in reply.events[:-1]:
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
        assert texts == {0: "a", 1: "cd"}
    else:
        assert [choice["text"] for choice in reply.json["choices"]] == ["a", "cd"]


# --- nothing but the prompt


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_may_be_shown_alone_with_its_log_probabilities(serve, stream):
    reply = serve().ask(completion("abc", echo=True, logprobs=1, max_tokens=0, stream=stream))
    choice = reply.events[0]["choices"][0] if stream else reply.json["choices"][0]
    assert (choice["text"], choice["logprobs"]["tokens"]) == ("abc", ["a", "b", "c"])
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, -0.5]
    last = reply.events[-2]["choices"][0] if stream else choice
    assert last["finish_reason"] == "length"


def test_of_an_empty_answer_nothing_is_counted(serve):
    usage = serve().ask(completion("abc", max_tokens=0)).json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 0)


def test_log_probabilities_of_prompt_and_answer_are_one_list(serve):
    logprobs = serve().ask(completion([[97, 98]], echo=True, logprobs=1, max_tokens=1)).json["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "b", "a"]
    assert logprobs["text_offset"] == [0, 1, 2]


def test_a_long_prompt_that_is_scored_takes_more_and_shorter_chunks(serve):
    service = serve(chunk_tokens=16)
    service.hold_steps()
    service.step(1000)
    assert service.ask(completion("a" * 40, echo=True, logprobs=0, max_tokens=0)).status == 200
    assert service.stepped() == 10  # four tokens each


def test_a_bias_names_a_token_of_the_vocabulary(serve):
    assert serve().ask(chat("a", logit_bias={"257": 1})).status == 200
    assert serve().ask(chat("a", logit_bias={"258": 1})).error["param"] == "logit_bias"


def test_usage_may_be_told_all_the_time(serve):
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = serve().ask(chat("abc", stream=True, stream_options=options)).events
    told = [event["usage"]["completion_tokens"] for event in events[:-1] if event["usage"]]
    assert told == [1, 2, 3, 4, 4]


def test_no_request_asks_for_more_answers_than_there_are_slots(serve):
    service: Service = serve(slots=2)
    assert service.ask(chat("a", n=2)).status == 200
    assert service.ask(chat("a", n=3)).error["param"] == "n"
