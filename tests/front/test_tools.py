"""Tools and structured output through the whole service, asked by the stock ``openai`` client.

The model says again what its prompt says, so each test writes the answer that is to be read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from echo_service import Service, expect_soon

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
NUMBERS = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {"type": "array", "items": {"type": "integer"}}},
}


@pytest.fixture
def service(serve) -> Service:
    return serve(slots=4)


@pytest.fixture
def client(service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{service.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, answer: str, **members: Any) -> Any:
    messages = [{"role": "user", "content": answer}]
    return client.chat.completions.create(model="echo", messages=messages, **members)


def test_a_call_is_a_member_of_its_own_and_the_reason_of_the_end(client):
    choice = ask(client, CALL, tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.id.startswith("call_")
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "add", {"a": 1})


def test_the_text_before_a_call_stays_text(client):
    choice = ask(client, f"Let me add.\n\n{CALL}\n{CALL}", tools=[TOOL]).choices[0]
    assert choice.message.content == "Let me add."
    assert len({call.id for call in choice.message.tool_calls}) == 2


def test_a_streamed_call_comes_in_pieces_with_its_index_in_each(client):
    chunks = list(ask(client, f"So: {CALL}", tools=[TOOL], stream=True))
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or []]
    assert [piece.index for piece in pieces] == [0] * len(pieces)
    assert [piece.function.name for piece in pieces] == ["add"] + [None] * (len(pieces) - 1)
    assert [piece.id is None for piece in pieces] == [False] + [True] * (len(pieces) - 1)
    assert len(pieces) > 5  # a token is a byte here, and none waits for the end
    assert "".join(piece.function.arguments for piece in pieces) == '{"a": 1}'
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "So:"
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_what_looks_like_a_call_is_text_where_no_tool_may_be_called(client):
    for members in ({}, {"tools": [TOOL], "tool_choice": "none"}):
        choice = ask(client, CALL, **members).choices[0]
        assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (CALL, None, "stop")


def test_a_call_that_is_cut_says_so(client):
    choice = ask(client, CALL, tools=[TOOL], max_tokens=45).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments == CALL[:45].partition('arguments": ')[2]


def test_a_required_call_and_a_schema_let_pass_what_they_ask_for(client):
    assert ask(client, CALL, tools=[TOOL], tool_choice="required").choices[0].finish_reason == "tool_calls"
    named = {"type": "function", "function": {"name": "add"}}
    assert ask(client, CALL, tools=[TOOL], tool_choice=named).choices[0].finish_reason == "tool_calls"
    choice = ask(client, "[1, 2]", response_format=NUMBERS).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("[1, 2]", "stop")


def test_several_answers_have_their_own_calls(client, service, serve):
    several = serve(slots=4, section={"n": 4})
    with openai.OpenAI(base_url=f"http://127.0.0.1:{several.port}/v1", api_key="none", max_retries=0) as other:
        choices = ask(other, CALL, tools=[TOOL], tool_choice="required", n=3).choices
    assert [choice.message.tool_calls[0].function.arguments for choice in choices] == ['{"a": 1}'] * 3
    assert len({choice.message.tool_calls[0].id for choice in choices}) == 3


def test_an_answer_that_leaves_its_grammar_never_looks_complete(client, service):
    """The echo engine does not look at masks: it stands for an engine that cannot keep to a grammar."""
    with pytest.raises(openai.InternalServerError):
        ask(client, "[1, x]", response_format=NUMBERS)
    with pytest.raises(openai.APIError):
        list(ask(client, "[1, x]", response_format=NUMBERS, stream=True))
    expect_soon(lambda: service.free_slots() == 4)


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "http://example.org/x.json"}, 5])
def test_a_malformed_schema_costs_its_own_400_and_nothing_else(client, service, schema):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, "x", response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert refused.value.param == "response_format"
    expect_soon(lambda: service.free_slots() == 4)
    assert ask(client, "Hello").choices[0].message.content == "Hello"


def test_schemas_are_compiled_on_a_thread_of_their_own_and_once(client, service):
    seen: list[str] = []
    compile_ = service.loaded.grammars.of

    def watched(request):
        seen.append(threading.current_thread().name.rpartition("_")[0])
        return compile_(request)

    service.loaded.grammars.of = watched
    for _ in range(2):
        ask(client, "[1]", response_format=NUMBERS)
    assert seen[0] == "zerolayer-grammar"
    assert seen[1] != "zerolayer-grammar"
