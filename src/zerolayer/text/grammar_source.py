"""What a request allows its answer to be, as a grammar in llguidance's dialect of Lark.

Syntax: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md. Answers have one space after ``,`` and
``:`` and no other white space between values: a model that may write any white space may write nothing else for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from zerolayer.text.json_schema import SchemaRefused, read_schema
from zerolayer.text.json_schema_keywords import plain
from zerolayer.text.tool_choice import callable_tools
from zerolayer.text.tool_format import ToolFormat
from zerolayer.wire.schema import OutputFormat, Request, Tool, ToolMode

_SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_ANY_OBJECT: Final = b'{"type": "object"}'
_NO_ARGUMENTS: Final = b'{"type": "object", "additionalProperties": false}'


class PlaceRefused(Exception):
    """A schema of the request cannot be read. ``param`` names the request's member, ``why`` is SchemaRefused's text."""

    def __init__(self, param: str, why: str) -> None:
        super().__init__(why)
        self.param = param
        self.why = why


def grammar_source(request: Request, form: ToolFormat, control_tokens: Mapping[str, int]) -> str:
    """The grammar of a request that is ``constrained``. Raises PlaceRefused.

    ``control_tokens``: what the model writes as one token, never as letters, with its id.
    """
    tools = callable_tools(request)
    forced = request.tool_choice.mode is ToolMode.REQUIRED
    calls = _Calls(tools, form, control_tokens, many=request.parallel_tool_calls, exact=forced)
    if forced:
        starts, rules = "calls", calls.rules()
    elif request.output is not None:
        starts, rules = "answer", [f"answer: {_value(request.output)}"]
        if tools:
            starts, rules = "answer | calls", [*rules, *calls.rules()]
    else:
        starts, free = calls.free()
        rules = [*free, *calls.rules()]
    return "\n".join([f"start: {starts}", *rules])


def parts(request: Request) -> list[tuple[str, str]]:
    """A grammar of each schema by itself, where ``grammar_source`` joins several: param, and the source.

    What nothing can satisfy is found at its beginning, which inside of a call is far from the beginning.
    """
    forced = request.tool_choice.mode is ToolMode.REQUIRED
    tools = [tool for tool in callable_tools(request) if tool.parameters and (forced or tool.strict)]
    schemas = [_read("tools", tool.parameters, strict=tool.strict) for tool in tools]
    return [("tools", f"start: value\nvalue: {_json(schema)}") for schema in schemas]


def _value(output: OutputFormat) -> str:
    return _json(_read(output.param, output.schema or _ANY_OBJECT))


def _read(param: str, text: bytes, *, strict: bool = True) -> dict[str, Any]:
    try:
        return plain(read_schema(text), strict=strict)
    except SchemaRefused as refused:
        raise PlaceRefused(param, str(refused)) from None


def _json(schema: dict[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": _SPACING})


class _Calls:
    """The rules of calls: ``calls`` is one call, or several where the form and the request know them.

    ``exact``: all arguments follow their schemas, not only those of strict tools.
    """

    def __init__(
        self, tools: Sequence[Tool], form: ToolFormat, control_tokens: Mapping[str, int], *, many: bool, exact: bool
    ) -> None:
        self._tools = tools
        self._form = form
        self._control_tokens = control_tokens
        self._many = many and form.between is not None
        self._exact = exact

    def rules(self) -> list[str]:
        """``calls``, ``one`` with its marker, ``rest``: what follows a marker, and a rule for each tool."""
        form, words = self._form, self._words
        marker = "" if form.bare else form.marker
        names = " | ".join(f"call_{at}" for at in range(len(self._tools)))
        more = f" ({words(form.between or '')} one)*" if self._many else ""
        if form.marks_each:
            body, one, around = f"{words(form.before)} ({names}) {words(form.after)}", f"{words(marker)} body", ("", "")
        else:
            body, one, around = f"({names})", "body", (words(form.before), words(form.after))
        rules = [
            f"calls: {words('' if form.marks_each else marker)} {around[0]} one{more} {around[1]}",
            f"rest: {around[0]} body{more} {around[1]}",
            f"one: {one}",
            f"body: {body}",
        ]
        return rules + [f"call_{at}: {self._call(tool)}" for at, tool in enumerate(self._tools)]

    def free(self) -> tuple[str, list[str]]:
        """The start of an answer that is text or calls, as the model likes, and the rules of text."""
        form = self._form
        if form.bare:
            names = "|".join(re.escape(tool.name) for tool in self._tools)
            call = rf'[ \n]*\{{\s*"name"\s*:\s*"({names})"(?s:.*)'
            return "TEXT | calls", [f"TEXT: /(?s:.*)/ & ~/{call}/"]
        if form.marker in self._control_tokens:  # which no text has
            return "TEXT? | TEXT? calls", ["TEXT: /(?s:.+)/"]
        marker = re.escape(form.marker).replace("/", r"\/")
        without = f"TEXT: /(?s:.*)/ & ~/(?s:.*){marker}(?s:.*)/"
        return "TEXT | before rest", [without, f"before[lazy]: /(?s:.*){marker}/"]

    def _call(self, tool: Tool) -> str:
        if self._form.named:
            return f"{self._words(tool.name, '[ARGS]')} {self._arguments(tool)}"
        head = f'{{"name": {json.dumps(tool.name)}, "{self._form.arguments}": '
        return f"{self._words(head)} {self._arguments(tool)} {self._words('}')}"

    def _arguments(self, tool: Tool) -> str:
        exact = self._exact or tool.strict
        schema = _read("tools", (tool.parameters or _NO_ARGUMENTS) if exact else _ANY_OBJECT, strict=tool.strict)
        if "object" in schema.get("type", ["object"]):  # arguments are an object, whatever else a schema lets pass
            schema["type"] = "object"
        return _json(schema)

    def _words(self, *texts: str) -> str:
        """Texts that stand as they are; of control tokens the tokens."""
        tokens = self._control_tokens
        return " ".join(f"<[{tokens[text]}]>" if text in tokens else json.dumps(text) for text in texts if text)
