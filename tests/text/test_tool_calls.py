"""Calls of tools are found in an answer while it grows, however it is cut."""

from __future__ import annotations

import json
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.text.tool_calls import ToolCallParser
from zerolayer.text.tool_format import HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, ToolFormat

NAMES = ("get_weather", "add")
Found = tuple[str, list[tuple[str, str, str]]]


def parse(form: ToolFormat, pieces: list[str]) -> Found:
    """The text that was shown, and (id, name, arguments) of every call."""
    ids = count()
    parser = ToolCallParser(form, NAMES, lambda: f"call{next(ids)}")
    text, calls = "", []
    for piece in pieces:
        text += parser.push(piece)
        for delta in parser.take():
            if delta.name:
                assert delta.index == len(calls)
                calls.append((delta.id, delta.name, ""))
            else:
                assert delta.index == len(calls) - 1
            call_id, name, arguments = calls[delta.index]
            calls[delta.index] = (call_id, name, arguments + delta.arguments)
    text += parser.flush()
    assert not parser.take()
    assert parser.calls == len(calls)
    return text, calls


@pytest.mark.parametrize(
    ("form", "answer", "text", "calls"),
    [
        (HERMES, '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', "", [("add", '{"a": 1}')]),
        (
            HERMES,
            (
                'Let me see.\n\n<tool_call>{"name":"add","arguments":{}}</tool_call>\n<tool_call>'
                '{"name": "get_weather", "arguments": {"city": "}\\"{"}}</tool_call>\nDone.'
            ),
            "Let me see.",
            [("add", "{}"), ("get_weather", '{"city": "}\\"{"}')],
        ),
        (HERMES, '<tool_call>{"arguments": {"a": [1]}, "name": "add"}</tool_call>', "", [("add", '{"a": [1]}')]),
        (HERMES, '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("add", '{"a": 1}')]),
        (HERMES, '<tool_call>{"name": "add"}</tool_call>', "", [("add", "{}")]),
        (HERMES, '<tool_call>{"name": "add", "arguments": null, "id": 7}</tool_call>', "", [("add", "{}")]),
        (HERMES, 'a <tool_call> b "c" <tool', 'a <tool_call> b "c" <tool', []),
        (HERMES, '<tool_call>{"name": "rm", "arguments": {}}', '<tool_call>{"name": "rm", "arguments": {}}', []),
        (HERMES, '<tool_call>{"name": "ad', '<tool_call>{"name": "ad', []),
        (HERMES, '<tool_call>{"name": "add", "arguments": {"a": ', "", [("add", '{"a": ')]),
        (HERMES, '<tool_call><tool_call>{"name":"add"}', "<tool_call>", [("add", "{}")]),
        (HERMES, "no call at all \n", "no call at all \n", []),
        (LLAMA, '{"name": "add", "parameters": {"a": 1}}', "", [("add", '{"a": 1}')]),
        (LLAMA, '\n {"type": "function", "name": "add", "parameters": {"a": 1}}', "", [("add", '{"a": 1}')]),
        (LLAMA, '<|python_tag|>{"name": "add", "parameters": {"a": 1}}', "", [("add", '{"a": 1}')]),
        (
            LLAMA,
            '{"name": "add", "parameters": {}}; {"name": "get_weather", "parameters": {"city": "Rome"}}',
            "",
            [("add", "{}"), ("get_weather", '{"city": "Rome"}')],
        ),
        (LLAMA, '{"name": "Alice", "age": 3}', '{"name": "Alice", "age": 3}', []),
        (LLAMA, 'Here: {"name": "add", "parameters": {}}', 'Here: {"name": "add", "parameters": {}}', []),
        (
            MISTRAL,
            '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2}}]',
            "",
            [("add", '{"a": 1}'), ("add", '{"a": 2}')],
        ),
        (MISTRAL, '[TOOL_CALLS]{"name": "add", "arguments": {}, "id": "x"}', "", [("add", "{}")]),
        (
            MISTRAL_NAMED,
            'So: [TOOL_CALLS]add[ARGS]{"a": {"b": 1}}[TOOL_CALLS]get_weather{"city": "x"}',
            "So:",
            [("add", '{"a": {"b": 1}}'), ("get_weather", '{"city": "x"}')],
        ),
        (MISTRAL_NAMED, '[TOOL_CALLS]add[CALL_ID]abc[ARGS]{"a": 1}', "", [("add", '{"a": 1}')]),
        (MISTRAL_NAMED, '[TOOL_CALLS]rm[ARGS]{"a": 1}', '[TOOL_CALLS]rm[ARGS]{"a": 1}', []),
    ],
)
def test_calls_of_every_family_are_read(form: ToolFormat, answer: str, text: str, calls: list[tuple[str, str]]) -> None:
    expected = (text, [(f"call{at}", *call) for at, call in enumerate(calls)])
    assert parse(form, [answer]) == expected
    assert parse(form, list(answer)) == expected


def test_a_call_is_shown_as_soon_as_its_name_is_read_and_its_arguments_as_they_come() -> None:
    parser = ToolCallParser(HERMES, NAMES, lambda: "id")
    parser.push('<tool_call>\n{"name": "add')
    assert parser.take() == []
    parser.push('"')
    assert [(delta.id, delta.name) for delta in parser.take()] == [("id", "add")]
    parser.push(', "arguments": {"a"')
    assert [delta.arguments for delta in parser.take()] == ['{"a"']
    parser.push(": 1")
    assert [delta.arguments for delta in parser.take()] == [": 1"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
noise = st.text(alphabet='<tool_cal>/{}[]"\\,: \n[TOOL_CALLS]nameargumnts1', max_size=30)


@st.composite
def answers(draw: st.DrawFn) -> tuple[ToolFormat, str]:
    form = draw(st.sampled_from((HERMES, LLAMA, MISTRAL, MISTRAL_NAMED)))
    parts = [draw(noise)]
    for _ in range(draw(st.integers(0, 3))):
        arguments = json.dumps(draw(json_values), ensure_ascii=draw(st.booleans()))
        name = draw(st.sampled_from((*NAMES, "unknown")))
        call = f'{{"name": "{name}", "{form.arguments}": {arguments}}}'
        parts += [form.marker, form.before, f"{name}[ARGS]{arguments}" if form.named else call, form.after, draw(noise)]
    return form, "".join(parts)


@settings(deadline=None)
@given(answers(), st.lists(st.integers(0, 200), max_size=8))
def test_any_chunking_gives_the_same_calls_and_the_same_text(answer: tuple[ToolFormat, str], cuts: list[int]) -> None:
    form, text = answer
    borders = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    pieces = [text[a:b] for a, b in pairwise(borders)]
    assert parse(form, pieces) == parse(form, [text])
    assert parse(form, list(text)) == parse(form, [text])


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4), st.booleans())
def test_arguments_come_out_as_they_were_written(arguments: dict[str, object], ascii_only: bool) -> None:
    written = json.dumps(arguments, ensure_ascii=ascii_only)
    text, calls = parse(HERMES, [f'<tool_call>\n{{"name": "add", "arguments": {written}}}\n</tool_call>'])
    assert text == ""
    assert calls == [("call0", "add", written)]
