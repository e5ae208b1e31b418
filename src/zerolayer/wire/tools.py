"""Tools as every API's decoder checks them: names, number, size of schemas, and which of them may be called.

Source of the rules for names: https://platform.openai.com/docs/api-reference/chat/create, ``tools``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.schema import OutputFormat, Tool, ToolChoice, ToolMode

_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def check_tools(
    tools: Sequence[Tool], limits: BodyLimits, places: Sequence[str], *, name_chars: int = 64
) -> tuple[Tool, ...]:
    """``tools`` if they are within the limits; ``places`` say where in the body each stands (``tools[0].function``).

    ``name_chars`` is the length of the longest name. Raises InvalidRequest.
    """
    if len(tools) > limits.tools:
        raise InvalidRequest(f"'tools' must have at most {limits.tools} tools.", param="tools", limit="tools")
    seen: set[str] = set()
    for tool, place in zip(tools, places, strict=True):
        param = f"{place}.name"
        if len(tool.name) > name_chars or not _NAME.fullmatch(tool.name):
            raise InvalidRequest(f"'{param}' must have 1 to {name_chars} letters, digits, '_' and '-'.", param=param)
        if tool.name in seen:
            raise InvalidRequest(f"'{param}' repeats the name of another tool.", param=param)
        seen.add(tool.name)
    if sum(len(tool.parameters) for tool in tools) > limits.schema_bytes:
        raise _too_large("tools", limits)
    return tuple(tools)


def check_choice(choice: ToolChoice, tools: Sequence[Tool], param: str = "tool_choice") -> ToolChoice:
    """``choice`` if the tools that it names exist. Raises InvalidRequest."""
    if choice.mode is ToolMode.REQUIRED and not tools:
        raise InvalidRequest(f"'{param}' asks for a call, but there are no tools.", param=param)
    known = {tool.name for tool in tools}
    if not known.issuperset(choice.names):
        raise InvalidRequest(f"'{param}' names a tool that is not among the tools.", param=param)
    return choice


def check_output(output: OutputFormat, limits: BodyLimits, param: str) -> OutputFormat:
    """``output`` with its ``param``, if its schema is not too long; what is in it is the compiler's to judge.

    Raises InvalidRequest.
    """
    if len(output.schema) > limits.schema_bytes:
        raise _too_large(param, limits)
    return OutputFormat(output.schema, param)


def _too_large(param: str, limits: BodyLimits) -> InvalidRequest:
    return InvalidRequest(
        f"The JSON schemas of '{param}' are longer than {limits.schema_bytes} bytes; send shorter ones.",
        param=param,
        limit="schema_bytes",
    )
