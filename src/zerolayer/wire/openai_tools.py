"""Tools, calls in the history and forms of output, as OpenAI's chat bodies have them.

Source: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai_fields import (
    AllowedTools,
    ChatBody,
    GivenCall,
    GivenTool,
    NamedTool,
    ResponseFormat,
)
from zerolayer.wire.openai_parameters import unsupported
from zerolayer.wire.schema import OutputFormat, Tool, ToolCall, ToolChoice, ToolMode
from zerolayer.wire.tools import check_choice, check_output, check_tools

_NULL: Final = msgspec.Raw(b"null")
_MODES: Final[Mapping[str, ToolMode]] = {mode.value: mode for mode in ToolMode}


def tools(given: Sequence[GivenTool] | None, limits: BodyLimits) -> tuple[Tool, ...]:
    """``tools``. Raises InvalidRequest."""
    if not given:
        return ()
    if len(given) > limits.tools:
        raise InvalidRequest(f"'tools' must have at most {limits.tools} tools.", param="tools", limit="tools")
    read = [_tool(one, f"tools[{at}]") for at, one in enumerate(given)]
    return check_tools(read, limits, [f"tools[{at}].function" for at in range(len(read))])


def tool_choice(fields: ChatBody, offered: tuple[Tool, ...]) -> ToolChoice:
    """``tool_choice``, of the tools that are ``offered``. Raises InvalidRequest."""
    given = fields.tool_choice
    if given is None:
        return ToolChoice()
    if isinstance(given, str):
        return check_choice(ToolChoice(_mode(given, "tool_choice")), offered)
    if given.type == "function" and given.function is not None:
        return check_choice(ToolChoice(ToolMode.REQUIRED, (given.function.name,)), offered)
    if given.type == "allowed_tools" and given.allowed_tools is not None:
        return check_choice(_allowed(given.allowed_tools), offered)
    raise InvalidRequest(
        "'tool_choice' must be none, auto, required, or an object of the type function or allowed_tools.",
        param="tool_choice",
    )


def output(given: ResponseFormat | None, limits: BodyLimits) -> OutputFormat | None:
    """``response_format``; None for free text. Raises InvalidRequest."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return OutputFormat()
    if given.type != "json_schema":
        raise InvalidRequest(
            "'response_format.type' must be text, json_object or json_schema.", param="response_format.type"
        )
    schema = given.json_schema.schema if given.json_schema is not None else msgspec.Raw()
    if not schema or schema == _NULL:
        param = "response_format.json_schema.schema"
        raise InvalidRequest(f"'{param}' is missing; send a JSON schema.", param=param)
    return check_output(OutputFormat(bytes(schema)), limits, "response_format")


def calls(given: Sequence[GivenCall], place: str) -> tuple[ToolCall, ...]:
    """``tool_calls`` of a message of the assistant, which stands at ``place``. Raises InvalidRequest."""
    read = []
    for at, call in enumerate(given):
        if call.type != "function" or call.function is None:
            raise unsupported(f"{place}.tool_calls[{at}].type", "only calls of functions are")
        read.append(ToolCall(call.id, call.function.name, call.function.arguments))
    return tuple(read)


def _tool(given: GivenTool, place: str) -> Tool:
    function = given.function
    if given.type != "function" or function is None:
        raise unsupported(f"{place}.type", 'only tools of the type "function" are')
    parameters = b"" if not function.parameters or function.parameters == _NULL else bytes(function.parameters)
    return Tool(function.name, function.description or "", parameters, function.strict is True)


def _allowed(given: AllowedTools) -> ToolChoice:
    names = tuple(_name(tool) for tool in given.tools)
    if not names:
        raise InvalidRequest("'tool_choice.allowed_tools.tools' is empty.", param="tool_choice")
    return ToolChoice(_mode(given.mode, "tool_choice.allowed_tools.mode"), names)


def _name(tool: NamedTool) -> str:
    return tool.function.name if tool.function is not None else tool.name


def _mode(given: str, param: str) -> ToolMode:
    mode = _MODES.get(given)
    if mode is None:
        raise InvalidRequest(f"'{param}' must be none, auto or required.", param=param)
    return mode
