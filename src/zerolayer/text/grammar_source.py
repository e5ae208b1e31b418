"""What a request allows its answer to be, as a grammar in llguidance's dialect of Lark.

Syntax: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md. Answers have one space after ``,`` and
``:`` and no other white space between values: a model that may write any white space may write nothing else for ever.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from zerolayer.text.json_schema import SchemaRefused, read_schema
from zerolayer.text.tool_format import ToolFormat
from zerolayer.wire.schema import OutputFormat, Request, Tool, ToolMode

_SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_COMBINING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "enum", "const", "type"})
_ANY_OBJECT: Final = b'{"type": "object"}'
_NO_ARGUMENTS: Final = b'{"type": "object", "additionalProperties": false}'


class PlaceRefused(Exception):
    """A schema of the request cannot be read. ``param`` names the request's member, ``why`` is SchemaRefused's text."""

    def __init__(self, param: str, why: str) -> None:
        super().__init__(why)
        self.param = param
        self.why = why


def constrained(request: Request) -> bool:
    """Whether not every answer will do."""
    return request.output is not None or (request.tool_choice.mode is ToolMode.REQUIRED and bool(request.tools))


def callable_tools(request: Request) -> tuple[Tool, ...]:
    """The tools that the answer may call."""
    choice = request.tool_choice
    if choice.mode is ToolMode.NONE:
        return ()
    return tuple(tool for tool in request.tools if not choice.names or tool.name in choice.names)


def grammar_source(request: Request, form: ToolFormat, control_tokens: Collection[str]) -> str:
    """The grammar of a request that is ``constrained``. Raises PlaceRefused.

    ``control_tokens``: names that the model writes as one token, never as letters.
    """
    rules: list[str] = []
    starts: list[str] = []
    if request.output is not None and request.tool_choice.mode is not ToolMode.REQUIRED:
        rules.append(f"answer: {_value('response_format', request.output)}")
        starts.append("answer")
    tools = callable_tools(request)
    if tools:
        rules += _calls(tools, form, control_tokens, many=request.parallel_tool_calls)
        starts.append("calls")
    return "\n".join([f"start: {' | '.join(starts)}", *rules])


def _value(param: str, output: OutputFormat) -> str:
    return _json(_read(param, output.schema or _ANY_OBJECT))


def _read(param: str, text: bytes) -> dict[str, Any]:
    try:
        return read_schema(text)
    except SchemaRefused as refused:
        raise PlaceRefused(param, str(refused)) from None


def _json(schema: dict[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": _SPACING})


def _arguments(tool: Tool) -> str:
    schema = _read("tools", tool.parameters or _NO_ARGUMENTS)
    if not _COMBINING & schema.keys():
        schema["type"] = "object"
    return _json(schema)


def _calls(tools: Sequence[Tool], form: ToolFormat, control_tokens: Collection[str], *, many: bool) -> list[str]:
    """``calls``: one call, or several where the form and the request know them."""

    def literal(text: str) -> str:
        return text if text in control_tokens else json.dumps(text)

    def words(*texts: str) -> str:
        return " ".join(literal(text) for text in texts if text)

    marker = "" if form.bare else form.marker
    rules = []
    for at, tool in enumerate(tools):
        if form.named:
            call = f"{words(tool.name, '[ARGS]')} {_arguments(tool)}"
        else:
            head = f'{{"name": {json.dumps(tool.name)}, "{form.arguments}": '
            call = f"{words(head)} {_arguments(tool)} {words('}')}"
        rules.append(f"call_{at}: {call}")
    one = "(" + " | ".join(f"call_{at}" for at in range(len(tools))) + ")"
    if form.marks_each:
        one = f"{words(marker, form.before)} {one} {words(form.after)}".strip()
        around = ("", "")
    else:
        around = (words(marker, form.before), words(form.after))
    rules.append(f"one: {one}")
    more = "" if form.between is None or not many else f" ({words(form.between)} one)*".replace("( ", "(")
    return [f"calls: {around[0]} one{more} {around[1]}".rstrip(), *rules]
