"""What a request's tools add to its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zerolayer.wire.schema import CallTurn, Request, Tool, ToolMode

# Instructions of some template, and JSON that it may write with more white space than the client did: a guess, as only
# rendering would tell. The true length is judged before anything runs.
_INSTRUCTIONS: Final = 512
_SPACING: Final = 4


def offered(request: Request) -> Sequence[Tool]:
    """The tools that the prompt tells the model about."""
    return () if request.tool_choice.mode is ToolMode.NONE else request.tools


def tools_bytes(request: Request) -> int:
    """How long what the prompt says of tools and calls is, as the client wrote it."""
    calls = sum(
        len(call.name) + len(call.arguments)
        for message in request.messages
        if isinstance(message, CallTurn)
        for call in message.calls
    )
    return calls + sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in offered(request))


def tools_tokens(written: int) -> int:
    """How many tokens ``tools_bytes`` bytes may be, at most."""
    return _INSTRUCTIONS + _SPACING * written if written else 0
