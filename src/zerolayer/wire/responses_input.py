"""``instructions`` and ``input`` of the Responses API: items to the messages of a conversation."""

from __future__ import annotations

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai_parameters import unsupported
from zerolayer.wire.responses_fields import Item, Part
from zerolayer.wire.schema import CallTurn, Message, ToolCall, ToolResult

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXTS = frozenset({"input_text", "output_text", "text"})


def messages(instructions: str | None, given: str | list[Item] | None, limits: BodyLimits) -> tuple[Message, ...]:
    """The conversation; ``instructions`` come first. Raises InvalidRequest."""
    if not given:
        raise InvalidRequest("'input' is missing or empty; send a string or a list of items.", param="input")
    read = [Message("system", instructions)] if instructions else []
    if isinstance(given, str):
        return (*read, Message("user", given))
    if len(given) > limits.json_messages:
        raise InvalidRequest(
            f"'input' must have at most {limits.json_messages} items.", param="input", limit="json_messages"
        )
    names: dict[str, str] = {}  # of the tools that were called, by the call
    for index, item in enumerate(given):
        _add(read, names, item, f"input[{index}]")
    return tuple(read)


def _add(read: list[Message], names: dict[str, str], item: Item, place: str) -> None:
    if item.type == "message":
        read.append(_message(item, place))
    elif item.type == "function_call":
        _add_call(read, names, item, place)
    elif item.type == "function_call_output":
        call_id = _required(item.call_id, f"{place}.call_id")
        output = "" if item.output is None else _text(item.output, f"{place}.output")
        read.append(ToolResult("tool", output, call_id, names.get(call_id, "")))
    elif item.type == "item_reference":
        raise unsupported(f"{place}.type", "nothing is kept between two requests: send the item itself")
    elif item.type != "reasoning":  # which this service never wrote, and its model would not understand
        raise unsupported(f"{place}.type", "only message, function_call, function_call_output and reasoning are")


def _message(item: Item, place: str) -> Message:
    role = _ROLES.get(item.role or "")
    if role is None:
        param = f"{place}.role"
        raise InvalidRequest(f"'{param}' must be system, developer, user or assistant.", param=param)
    if item.content is None:
        param = f"{place}.content"
        raise InvalidRequest(f"'{param}' must be a string or a list of text parts.", param=param)
    return Message(role, _text(item.content, f"{place}.content"))


def _add_call(read: list[Message], names: dict[str, str], item: Item, place: str) -> None:
    """A call belongs to the assistant's turn before it, if there is one."""
    call = ToolCall(
        _required(item.call_id, f"{place}.call_id"), _required(item.name, f"{place}.name"), item.arguments or "{}"
    )
    names[call.id] = call.name
    last = read[-1] if read else None
    if isinstance(last, CallTurn):
        read[-1] = CallTurn("assistant", last.content, (*last.calls, call))
    elif last is not None and last.role == "assistant":
        read[-1] = CallTurn("assistant", last.content, (call,))
    else:
        read.append(CallTurn("assistant", "", (call,)))


def _required(text: str | None, param: str) -> str:
    if not text:
        raise InvalidRequest(f"'{param}' is missing.", param=param)
    return text


def _text(content: str | list[Part], place: str) -> str:
    """Parts are paragraphs of one text, as on the chat route."""
    if isinstance(content, str):
        return content
    return "\n".join([_part(part, f"{place}[{number}]") for number, part in enumerate(content)])


def _part(part: Part, place: str) -> str:
    if part.type in _TEXTS and part.text is not None:
        return part.text
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if part.type in _TEXTS or part.type == "refusal":
        raise InvalidRequest(f"'{place}.text' is missing.", param=f"{place}.text")
    raise unsupported(f"{place}.type", "only text is")
