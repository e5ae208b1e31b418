"""Tools, calls and results in the prompt: as values for a chat template that knows them, else as plain messages.

The plain form is the one that Hermes and Qwen models were trained on
(https://github.com/NousResearch/Hermes-Function-Calling): tools in the system message, a call between ``<tool_call>``
and ``</tool_call>``, results in a user message between ``<tool_response>`` and ``</tool_response>``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.text.json_schema import MAX_DEPTH
from zerolayer.wire.schema import CallTurn, Message, Tool, ToolCall, ToolResult

Guarded = Callable[[str], str]

_INSTRUCTIONS: Final = (
    "You may call functions. These are their names, what they do and the JSON schemas of their arguments:\n"
    "<tools>\n{tools}\n</tools>\n"
    "To call a function, answer with its name and its arguments, nothing else:\n"
    '<tool_call>\n{{"name": "<name>", "arguments": <arguments as JSON>}}\n</tool_call>'
)
_SHORT_ID: Final = 9  # Mistral's templates refuse ids of any other length
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PROBE: Final = Tool("probe_tool_name", "", b'{"type": "object", "properties": {}}')
"""A tool by whose name one sees whether a template writes tools."""


def uses_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> bool:
    """Whether a conversation has anything that only tools bring."""
    return bool(tools) or any(isinstance(message, (CallTurn, ToolResult)) for message in messages)


def plain_messages(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The conversation in plain messages. Results that follow one another become one message."""
    plain: list[Message] = []
    results = False
    for message in messages:
        if isinstance(message, ToolResult):
            text = f"<tool_response>\n{message.content}\n</tool_response>"
            if results:
                text = f"{plain.pop().content}\n{text}"
            plain.append(Message("user", text))
        elif isinstance(message, CallTurn):
            calls = [f"<tool_call>\n{_object(call)}\n</tool_call>" for call in message.calls]
            plain.append(Message(message.role, "\n".join([message.content, *calls] if message.content else calls)))
        else:
            plain.append(message)
        results = isinstance(message, ToolResult)
    if tools:
        text = _INSTRUCTIONS.format(tools="\n".join(_json(tool_value(tool)["function"]) for tool in tools))
        if plain and plain[0].role == "system":
            text = f"{plain.pop(0).content}\n\n{text}"
        plain.insert(0, Message("system", text))
    return plain


def tool_value(tool: Tool) -> dict[str, Any]:
    """A tool as templates know it, which is OpenAI's form. Raises InvalidRequest."""
    try:
        parameters = _value(tool.parameters or b'{"type": "object", "properties": {}}')
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise InvalidRequest(
            f"The parameters of a tool must be a JSON schema, an object that is nested at most {MAX_DEPTH} deep.",
            param="tools",
        )
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def message_value(message: Message) -> dict[str, Any]:
    """A message as templates know it: arguments as values where they are JSON, ids short."""
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if isinstance(message, CallTurn):
        value["tool_calls"] = [
            {
                "id": _short(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in message.calls
        ]
    elif isinstance(message, ToolResult):
        value |= {"tool_call_id": _short(message.call_id), "name": message.name}
    return value


def guarded(value: Any, guard: Guarded) -> Any:
    """``value`` with every text in it, keys too, given through ``guard``."""
    if isinstance(value, str):
        return guard(value)
    if isinstance(value, list):
        return [guarded(item, guard) for item in value]
    if isinstance(value, dict):
        return {guard(key): guarded(item, guard) for key, item in value.items()}
    return value


def texts_in(value: Any) -> list[str]:
    """Every text in ``value``, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in texts_in(item))]
    return []


def _short(call_id: str) -> str:
    if len(call_id) == _SHORT_ID and call_id.isalnum() and call_id.isascii():
        return call_id
    number = int.from_bytes(hashlib.blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return "".join(_DIGITS[number // 62**place % 62] for place in range(_SHORT_ID))


def _arguments(call: ToolCall) -> Any:
    try:
        value = _value(call.arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return call.arguments
    return value if isinstance(value, dict) else call.arguments


def _object(call: ToolCall) -> str:
    return _json({"name": call.name, "arguments": _arguments(call)})


def _value(text: bytes) -> Any:
    """The JSON ``text``, nested at most ``MAX_DEPTH`` deep. Raises ValueError."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise ValueError from None
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError
        level = [
            inner
            for outer in level
            if isinstance(outer, (list, dict))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return value


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
