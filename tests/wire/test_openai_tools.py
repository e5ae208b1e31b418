"""Tools, calls and forms of output in OpenAI's chat bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai_bodies import HELLO, SECRET, chat, refusal, refused_param

from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai_reply import choice_member
from zerolayer.wire.openai_stream import StreamWriter
from zerolayer.wire.schema import (
    CallDelta,
    CallTurn,
    FinishReason,
    Message,
    OutputFormat,
    Route,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
)

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA, "strict": True}}
NOW = {"type": "function", "function": {"name": "now"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_tools_arrive_with_their_schemas_as_they_were_written() -> None:
    tools = chat(tools=[ADD, NOW]).tools
    assert tools[0] == Tool("add", "adds", tools[0].parameters, strict=True)
    assert json.loads(tools[0].parameters) == SCHEMA
    assert tools[1] == Tool("now")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice(ToolMode.NONE)),
        ("required", ToolChoice(ToolMode.REQUIRED)),
        (named("now"), ToolChoice(ToolMode.REQUIRED, ("now",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("now")]}},
            ToolChoice(ToolMode.AUTO, ("now",)),
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "f", "name": "add"}]}},
            ToolChoice(ToolMode.REQUIRED, ("add",)),
        ),
    ],
)
def test_every_tool_choice_is_understood(given: Any, expected: ToolChoice) -> None:
    assert chat(tools=[ADD, NOW], tool_choice=given).tool_choice == expected


def test_calls_are_parallel_unless_it_is_said() -> None:
    assert chat(tools=[NOW]).parallel_tool_calls
    assert chat(tools=[NOW], parallel_tool_calls=None).parallel_tool_calls
    assert not chat(tools=[NOW], parallel_tool_calls=False).parallel_tool_calls


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"tools": [{"type": SECRET}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].type"),
        ({"tools": [NOW, {"type": "function", "function": {"name": f"{SECRET} "}}]}, "tools[1].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "x" * 65}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": 1}}]}, "tools[0].function.name"),
        ({"tools": [NOW, NOW]}, "tools[1].function.name"),
        ({"tools": SECRET}, "tools"),
        ({"tools": [NOW], "tool_choice": SECRET}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": SECRET}}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": named(SECRET)}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": named("now")}, "tool_choice"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(members: dict[str, Any], param: str) -> None:
    assert refused_param(chat, **members) == param


def test_there_may_be_as_many_tools_as_the_limit() -> None:
    limits = BodyLimits(tools=1)
    assert len(chat(limits, tools=[ADD]).tools) == 1
    assert "at most 1" in refusal(chat, limits, tools=[ADD, NOW]).message


def test_schemas_of_all_tools_together_are_limited() -> None:
    size = len(chat(tools=[ADD]).tools[0].parameters)
    assert chat(BodyLimits(schema_bytes=size), tools=[ADD, NOW]).tools
    error = refusal(chat, BodyLimits(schema_bytes=size - 1), tools=[ADD, NOW])
    assert (error.param, str(size - 1) in error.message) == ("tools", True)


# --- the history


def test_calls_and_results_of_the_history_arrive_with_the_names_of_their_tools() -> None:
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "2"}]},
        {"role": "tool", "tool_call_id": "c9", "content": "3"},
        {"role": "assistant", "content": "so", "tool_calls": [CALL | {"function": {"name": "now"}}]},
    ]
    assert chat(messages=messages).messages == (
        Message("user", "hello"),
        CallTurn("assistant", "", (ToolCall("c1", "add", '{"a": 1}'),)),
        ToolResult("tool", "2", "c1", "add"),
        ToolResult("tool", "3", "c9", ""),
        CallTurn("assistant", "so", (ToolCall("c1", "now", ""),)),
    )


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": None, "tool_call_id": "1"}, "messages[0].content"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "type": "custom"}]}, "messages[0].tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": 1}]}, "messages[0].tool_calls[0].id"),
    ],
)
def test_calls_that_cannot_be_read_name_the_place(message: dict[str, Any], param: str) -> None:
    assert refused_param(chat, messages=[message]) == param


# --- forms of output


def test_every_response_format_is_understood() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}
    output = chat(response_format=schema).output
    assert output is not None
    assert json.loads(output.schema) == SCHEMA
    assert chat(response_format={"type": "json_object"}).output == OutputFormat()
    assert chat(response_format={"type": "text"}).output is None


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"type": SECRET}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": None}}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": {"const": "x" * 100}}}, "response_format"),
        (SECRET, "response_format"),
    ],
)
def test_forms_that_cannot_be_kept_are_refused(given: Any, param: str) -> None:
    error = refusal(chat, BodyLimits(schema_bytes=80), response_format=given)
    assert (error.status, error.param) == (400, param)


# --- replies


def test_a_whole_answer_shows_its_calls() -> None:
    calls = [ToolCall("c1", "add", '{"a": 1}')]
    choice = json.loads(bytes(choice_member(Route.CHAT, "", FinishReason.TOOL_CALLS, calls=calls)))
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]}


def test_an_answer_without_calls_has_no_member_for_them() -> None:
    assert "tool_calls" not in json.loads(bytes(choice_member(Route.CHAT, "x", FinishReason.STOP)))["message"]


def test_pieces_of_calls_are_an_event_each_and_name_id_and_type_once() -> None:
    writer = StreamWriter(Route.CHAT, "r", 1, "m", include_usage=False)
    pieces = [CallDelta(0, "c1", "add"), CallDelta(0, arguments='{"a"'), CallDelta(1, "c2", "now")]
    events = [json.loads(event.removeprefix("data: ")) for event in writer.calls(pieces).decode().split("\n\n")[:-1]]
    assert [event["choices"][0]["delta"]["tool_calls"] for event in events] == [
        [{"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"a"'}}],
        [{"index": 1, "id": "c2", "type": "function", "function": {"name": "now", "arguments": ""}}],
    ]
    assert {event["choices"][0]["finish_reason"] for event in events} == {None}
