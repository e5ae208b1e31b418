"""Bodies of the Responses API: items to messages, and what would need a memory is refused with the remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai_bodies import LIMITS, SECRET, refusal, refused_param

from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.responses import ResponseRequest, decode_response
from zerolayer.wire.schema import (
    CallTurn,
    Message,
    OutputFormat,
    Route,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
)

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "2"}
FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def respond(limits: BodyLimits = LIMITS, **members: Any) -> ResponseRequest:
    return decode_response(json.dumps({"model": "m", "input": "hello"} | members).encode(), limits)


def told(**members: Any) -> dict[str, Any]:
    return json.loads(b"{" + respond(**members).told + b"}")


def test_a_string_is_the_user_s_message() -> None:
    request = respond()
    assert (request.route, request.messages) == (Route.RESPONSES, (Message("user", "hello"),))


def test_instructions_come_first() -> None:
    request = respond(instructions="be brief", input=[{"role": "user", "content": "hi"}])
    assert request.messages == (Message("system", "be brief"), Message("user", "hi"))


def test_parameters_arrive_where_they_belong() -> None:
    request = respond(temperature=0.5, top_p=0.9, max_output_tokens=7, stream=True, service_tier="flex")
    assert (request.sampling.temperature, request.sampling.top_p) == (0.5, 0.9)
    assert (request.max_tokens, request.stream, request.tier.name) == (7, True, "FLEX")


def test_parts_are_paragraphs_whichever_of_the_text_types_they_have() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b", "annotations": []}]
    assert respond(input=[{"role": "user", "content": parts}]).messages == (Message("user", "a\nb"),)


def test_calls_and_their_outputs_are_turns() -> None:
    request = respond(input=[{"role": "user", "content": "x"}, {"type": "reasoning", "summary": []}, CALL, RESULT])
    assert request.messages[1:] == (
        CallTurn("assistant", "", (ToolCall("c1", "f", '{"a":1}'),)),
        ToolResult("tool", "2", "c1", "f"),
    )


def test_calls_belong_to_what_the_assistant_said_before_them() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]}
    request = respond(input=[said, CALL, CALL | {"call_id": "c2"}])
    (turn,) = request.messages
    assert isinstance(turn, CallTurn)
    assert (turn.content, [call.id for call in turn.calls]) == ("wait", ["c1", "c2"])


def test_tools_are_functions() -> None:
    request = respond(tools=[FUNCTION], tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False)
    assert request.tools == (Tool("f", "d", b'{"type": "object"}', True),)
    assert request.tool_choice == ToolChoice(ToolMode.REQUIRED, ("f",))
    assert not request.parallel_tool_calls


def test_tools_that_only_others_could_run_are_not_offered_to_the_model() -> None:
    hosted = [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": [FUNCTION]}, {"type": "custom"}]
    assert [tool.name for tool in respond(tools=[*hosted, FUNCTION]).tools] == ["f"]
    assert [tool["name"] for tool in told(tools=[*hosted, FUNCTION])["tools"]] == ["f"]


def test_some_of_the_tools_may_be_allowed() -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
    assert respond(tools=[FUNCTION], tool_choice=allowed).tool_choice == ToolChoice(ToolMode.REQUIRED, ("f",))


@pytest.mark.parametrize(
    ("form", "output"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat(param="text.format")),
        (
            {"type": "json_schema", "name": "n", "schema": {"type": "integer"}},
            OutputFormat(b'{"type": "integer"}', "text.format.schema"),
        ),
    ],
)
def test_the_answer_may_have_a_form(form: Any, output: OutputFormat | None) -> None:
    assert respond(text={"format": form, "verbosity": "low"}).output == output


@pytest.mark.parametrize(
    ("members", "top"),
    [({}, None), ({"top_logprobs": 3}, 3), ({"include": ["message.output_text.logprobs"]}, 0)],
)
def test_log_probabilities_are_asked_for_in_two_ways(members: dict[str, Any], top: int | None) -> None:
    assert respond(**members).sampling.top_logprobs == top


@pytest.mark.parametrize(
    ("members", "remedy"),
    [
        ({"previous_response_id": SECRET}, "whole conversation"),
        ({"conversation": {"id": SECRET}}, "whole conversation"),
        ({"background": True}, "stream"),
        ({"prompt": {"id": SECRET}}, "instructions"),
        ({"input": [{"type": "item_reference", "id": SECRET}]}, "send the item itself"),
    ],
)
def test_what_needs_a_memory_is_refused_with_the_remedy(members: dict[str, Any], remedy: str) -> None:
    error = refusal(respond, **members)
    assert (error.status, remedy in error.message) == (400, True)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": SECRET, "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"type": SECRET}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "7"}, "max_output_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"type": "web_search"}, FUNCTION | {"name": "no good"}]}, "tools[1].name"),
        ({"tools": [{"type": "web_search"}] * 129}, "tools"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
    ],
)
def test_what_cannot_be_read_names_the_place(members: dict[str, Any], param: str) -> None:
    assert refused_param(respond, **members) == param


def test_members_that_change_nothing_here_are_ignored() -> None:
    members = {
        "store": True, "reasoning": {"effort": "low"}, "truncation": "auto", "prompt_cache_key": "k", "user": "u",
        "stream_options": {"include_obfuscation": True}, "max_tool_calls": 3, "safety_identifier": "s", "new": [1],
    }  # fmt: skip
    assert respond(**members).messages == respond().messages


def test_the_response_repeats_what_was_asked() -> None:
    members = {"instructions": "x", "metadata": {"a": "b"}, "tools": [FUNCTION], "tool_choice": "auto", "user": "u"}
    shown = told(**members)
    assert {name: shown[name] for name in members} == members
    assert (shown["store"], shown["previous_response_id"], shown["temperature"]) == (False, None, 1.0)


def test_no_more_items_than_messages() -> None:
    items = [{"role": "user", "content": "x"}] * 3
    assert len(respond(BodyLimits(json_messages=3), input=items).messages) == 3
    assert refused_param(respond, limits=BodyLimits(json_messages=2), input=items) == "input"
