"""Which tools an answer may call, and whether not every answer will do."""

from __future__ import annotations

from zerolayer.wire.schema import Request, Tool, ToolMode


def constrained(request: Request) -> bool:
    """Whether not every answer will do."""
    if request.output is not None:
        return True
    tools = callable_tools(request)
    return bool(tools) and (request.tool_choice.mode is ToolMode.REQUIRED or any(tool.strict for tool in tools))


def callable_tools(request: Request) -> tuple[Tool, ...]:
    """The tools that the answer may call."""
    choice = request.tool_choice
    if choice.mode is ToolMode.NONE:
        return ()
    return tuple(tool for tool in request.tools if not choice.names or tool.name in choice.names)
