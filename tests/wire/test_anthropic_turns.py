"""Anthropic's turns to messages: blocks, tool results, system items among the messages, the beginning of an answer."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic_bodies import HELLO, assistant, messages, refusal, text, user

from zerolayer.wire.anthropic_turns import joined_turns
from zerolayer.wire.schema import CallTurn, Message, ToolCall, ToolResult

CALL = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "rain"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/"}}

SHOWN = RESULT | {"content": [IMAGE]}


def turns(*given: dict[str, Any], **members: Any) -> tuple[Message, ...]:
    return messages(messages=list(given), **members).messages


def test_blocks_of_text_are_paragraphs() -> None:
    blocks = [text("one", cache_control={"type": "ephemeral"}), text(""), text("two")]
    assert turns(user(blocks)) == (Message("user", "one\ntwo"),)


@pytest.mark.parametrize("system", ["Be kind.", [text("Be"), text("kind.", cache_control={"type": "ephemeral"})]])
def test_system_text_comes_first(system: Any) -> None:
    assert turns(user("hello"), system=system)[0].role == "system"


def test_an_empty_system_is_none() -> None:
    assert turns(user("hello"), system=[]) == turns(user("hello"), system="") == (Message("user", "hello"),)


def test_the_attribution_that_changes_with_every_request_is_left_out() -> None:
    system = [text("x-anthropic-billing-header: cc_version=2.1; cch=5f3;"), text("Be kind.")]
    assert turns(user("hello"), system=system) == turns(user("hello"), system="Be kind.")


def test_system_items_among_the_messages_are_hoisted_in_their_order() -> None:
    said = turns(
        user("one"), {"role": "system", "content": "b"}, assistant("two"), user("three"),
        {"role": "system", "content": [text("c")]}, system="a",
    )  # fmt: skip
    expected = ("system", "a\nb\nc"), ("user", "one"), ("assistant", "two"), ("user", "three")
    assert said == tuple(Message(*pair) for pair in expected)


def test_consecutive_turns_of_one_role_are_one() -> None:
    said = turns(user("a"), user([text("b")]), assistant("c"), assistant("d"), user("e"))
    assert joined_turns(said) == [Message("user", "a\nb"), Message("assistant", "c\nd"), Message("user", "e")]


def test_turns_of_the_user_are_made_one_only_after_what_is_said_twice_could_be_left_out() -> None:
    assert turns(user("hi"), user([text("hi")])) == (Message("user", "hi"), Message("user", "hi"))


def test_joined_turns_leave_results_and_empty_texts_as_they_are() -> None:
    said = turns(user("Rain?"), assistant([CALL]), user([RESULT, text("And?")]), user([text("")]), user("Now?"))
    assert [(message.role, message.content) for message in joined_turns(said)] == [
        ("user", "Rain?"), ("assistant", ""), ("tool", "rain"), ("user", "And?\nNow?"),
    ]  # fmt: skip


def test_a_call_and_its_result() -> None:
    said = turns(user("Rain?"), assistant([text("I look."), CALL]), user([RESULT, text("And?")]))
    assert said == (
        Message("user", "Rain?"),
        CallTurn("assistant", "I look.", (ToolCall("t1", "weather", '{"city": "Ulm"}'),)),
        ToolResult("tool", "rain", "t1", "weather"),
        Message("user", "And?"),
    )


def test_results_stand_before_the_text_of_their_turn_wherever_they_are() -> None:
    said = turns(user("Rain?"), assistant([CALL]), user([text("And?"), RESULT]))
    assert [message.role for message in said[2:]] == ["tool", "user"]


def test_a_turn_of_results_alone_leaves_no_text_behind() -> None:
    said = turns(user("Rain?"), assistant([CALL]), user([RESULT]))
    assert said[-1] == ToolResult("tool", "rain", "t1", "weather")


@pytest.mark.parametrize(
    ("content", "read"), [([text("a"), text("b")], "a\nb"), ([], ""), (None, ""), ("", ""), ("absent", "")]
)
def test_a_result_may_be_text_blocks_or_nothing(content: Any, read: str) -> None:
    result = {name: value for name, value in (RESULT | {"content": content}).items() if value != "absent"}
    assert turns(user("?"), assistant([CALL]), user([result]))[-1].content == read


def test_several_calls_of_one_turn_keep_their_order() -> None:
    second = CALL | {"id": "t2", "name": "snow"}
    said = turns(user("?"), assistant([CALL, second]), user([RESULT | {"tool_use_id": "t2"}, RESULT]))
    assert [(result.call_id, result.name) for result in said[2:]] == [("t2", "snow"), ("t1", "weather")]


def test_thoughts_of_earlier_turns_are_left_out() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    assert turns(user("a"), assistant([thought, hidden, text("b")]), user("c"))[1] == Message("assistant", "b")


def test_a_last_turn_of_the_assistant_is_the_beginning_of_the_answer() -> None:
    request = messages(messages=[*HELLO, assistant("The answer is (")])
    assert (request.messages, request.prefill) == ((Message("user", "hello"),), "The answer is (")


@pytest.mark.parametrize("content", ["", []])
def test_an_empty_last_turn_of_the_assistant_is_no_turn(content: Any) -> None:
    assert messages(messages=[*HELLO, assistant(content)]) == messages()


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([user([IMAGE])], "messages[0].content[0].type"),
        ([user([text("x"), {"type": "document"}])], "messages[0].content[1].type"),
        ([user([{"type": "text"}])], "messages[0].content[0].text"),
        ([user("x"), assistant([{"type": "server_tool_use"}])], "messages[1].content[0].type"),
        ([user("x"), assistant([CALL]), user([SHOWN])], "messages[2].content[0].content[0].type"),
        ([user("x"), assistant([CALL]), user([RESULT | {"tool_use_id": "t9"}])], "messages[2].content[0].tool_use_id"),
        ([user([RESULT])], "messages[0].content[0].tool_use_id"),
        ([user("x"), assistant([CALL | {"input": "{}"}]), user([RESULT])], "messages[1].content[0].input"),
        ([user("x"), assistant([CALL | {"id": None}]), user([RESULT])], "messages[1].content[0].id"),
        ([user("x"), assistant([CALL, CALL]), user([RESULT])], "messages[1].content[1].id"),
        ([user("x"), assistant([CALL])], "messages"),
        ([user("x"), assistant("ends with space ")], "messages"),
        ([user("x"), assistant(""), user("y")], "messages[1].content"),
        ([user("")], "messages[0].content"),
        ([user([])], "messages[0].content"),
        ([user(None)], "messages[0].content"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0]"),
        ([assistant("alone")], "messages"),
        ([{"role": "system", "content": "alone"}], "messages"),
    ],
)  # fmt: skip
def test_what_the_model_could_not_read_is_refused_by_its_place(given: Any, param: str) -> None:
    assert refusal(messages=given).param == param


def test_a_system_block_of_another_kind_is_refused() -> None:
    assert refusal(system=[IMAGE]).param == "system[0].type"
