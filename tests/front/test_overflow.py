"""A conversation that is too long: what the model sees of it, and what the client is told."""

from __future__ import annotations

import pytest
from echo_model import WholeConversation
from echo_service import post

LONG = "x" * 400


@pytest.fixture
def truncating(serve):
    return serve(context={"overflow": "truncate"}, shows=WholeConversation)


def conversation(*contents: str, **members: object) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": content} for at, content in enumerate(contents)]
    system = {"role": "system", "content": "be brief"}
    body = {"model": "echo", "messages": [system, *messages], "max_tokens": 80, **members}
    return post("/v1/chat/completions", body)


def test_the_newest_turns_and_the_system_message_reach_the_model(truncating):
    reply = truncating.ask(conversation(LONG, "yes", "and now?"))
    assert reply.json["choices"][0]["message"]["content"] == "system:be briefuser:[TRUNCATED]\nand now?"


def test_the_reply_says_how_many_messages_are_missing(truncating):
    reply = truncating.ask(conversation(LONG, "yes", "and now?"))
    assert reply.json["zerolayer"]["truncated_messages"] == 2
    assert reply.headers["x-zl-truncated"] == "2"


def test_a_stream_says_so_too(truncating):
    reply = truncating.ask(conversation(LONG, "yes", "and now?", stream=True))
    assert [event["zerolayer"]["truncated_messages"] for event in reply.events[:-1] if "zerolayer" in event] == [2]
    assert reply.headers["x-zl-truncated"] == "2"


def test_what_fits_is_neither_cut_nor_marked(truncating):
    reply = truncating.ask(conversation("a", "b", "c"))
    assert "[TRUNCATED]" not in reply.json["choices"][0]["message"]["content"]
    assert "truncated_messages" not in reply.json["zerolayer"]
    assert "x-zl-truncated" not in reply.headers


def test_a_text_that_no_slot_could_hold_is_cut_as_well(truncating):
    assert truncating.ask(conversation("x" * 20_000, "yes", "and now?")).status == 200


def test_without_a_wish_half_of_the_slot_is_left_for_the_answer(truncating):
    reply = truncating.ask(conversation("x" * 240, "y" * 240, "z" * 10, max_tokens=None))
    assert reply.json["zerolayer"]["max_tokens"] > 256


def test_a_newest_turn_that_does_not_fit_is_refused(truncating):
    reply = truncating.ask(conversation("a", "b", "x" * 500))
    assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
    assert truncating.free_slots() == 4


def test_a_bare_prompt_has_no_turns_and_is_refused(truncating):
    reply = truncating.ask(post("/v1/completions", {"model": "echo", "prompt": "x" * 510, "max_tokens": 5}))
    assert reply.status == 400


def test_without_the_contracts_word_nothing_is_cut(serve):
    reply = serve(shows=WholeConversation).ask(conversation(LONG, "yes", "and now?"))
    assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")


CHATS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


def repeated(service, path):
    """The account of a user who says a word three times, and what the model saw of it."""
    turns = [{"role": "user", "content": "hi"}] * 3
    members = {"input": turns} if path == "/v1/responses" else {"messages": turns, "max_tokens": 80}
    reply = service.ask(post(path, {"model": "echo", **members})).json
    if path == "/v1/chat/completions":
        return reply["zerolayer"], reply["choices"][0]["message"]["content"]
    content = reply["output"][0]["content"] if path == "/v1/responses" else reply["content"]
    return reply["zerolayer"], content[0]["text"]


@pytest.mark.parametrize("path", CHATS)
def test_repeated_user_messages_are_said_once_where_the_contract_asks_for_it(serve, path):
    account, seen = repeated(serve(context={"drop_duplicate_turns": True}, shows=WholeConversation), path)
    assert (account["dropped_duplicates"], seen) == (2, "user:hi")


@pytest.mark.parametrize("path", CHATS)
def test_repeated_user_messages_stay_by_default(serve, path):
    account, seen = repeated(serve(shows=WholeConversation), path)
    assert seen == ("user:hi\nhi\nhi" if path == "/v1/messages" else "user:hi" * 3)
    assert "dropped_duplicates" not in account
