"""What a request's tools add to its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zerolayer.wire.schema import Request, Tool, ToolMode

# Instructions of some template, and JSON that it may write with more white space than the client did: a guess, as only
# rendering would tell. The true length is judged before anything runs.
_INSTRUCTIONS: Final = 512
_SPACING: Final = 4


def offered(request: Request) -> Sequence[Tool]:
    """The tools that the prompt tells the model about."""
    return () if request.tool_choice.mode is ToolMode.NONE else request.tools


def tools_tokens(request: Request) -> int:
    """How many tokens they may be, at most; 0 for no tools."""
    tools = offered(request)
    if not tools:
        return 0
    text = sum(len(tool.name) + len(tool.description.encode("utf-8", "replace")) for tool in tools)
    return _INSTRUCTIONS + _SPACING * (text + sum(len(tool.parameters) for tool in tools))
