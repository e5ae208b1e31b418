"""Anthropic's turns to the schema's messages: blocks joined, tool results apart, system items hoisted, a prefill.

What the API says about turns: consecutive turns of one role are one; a last turn of the assistant is the beginning of
the answer. Those of the user are made one by ``joined_turns``, after whoever leaves out what is said twice.
Source: https://docs.anthropic.com/en/api/messages, ``messages``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zerolayer.errors import InvalidRequest
from zerolayer.wire.anthropic_fields import Block, Turn
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.schema import CallTurn, Message, ToolCall, ToolResult

_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})  # of earlier turns: never shown to the model again
_BREAK: Final = "\n"  # blocks are paragraphs of one text
# Claude Code's note to Anthropic's billing, another one with every request: the prompt's beginning would never be kept.
_ATTRIBUTION: Final = "x-anthropic-billing-header:"


def conversation(
    turns: Sequence[Turn] | None, system: str | Sequence[Block] | None, limits: BodyLimits
) -> tuple[tuple[Message, ...], str]:
    """The messages, a system message first if there is any system text, and the text that the answer begins with.

    Raises InvalidRequest.
    """
    if not turns:
        raise InvalidRequest("'messages' is missing or empty; send at least one message.", param="messages")
    if len(turns) > limits.json_messages:
        raise InvalidRequest(
            f"'messages' must have at most {limits.json_messages} messages.", param="messages", limit="json_messages"
        )
    reader = _Reader()
    if system:
        reader.system(system, "system")
    for index, turn in enumerate(turns):
        reader.turn(turn, index, is_last=index + 1 == len(turns))
    return reader.done()


class _Reader:
    """Takes the turns of one request, in their order."""

    def __init__(self) -> None:
        self._system: list[str] = []
        self._messages: list[Message] = []
        self._tools: dict[str, str] = {}  # id of each call so far -> name of its tool

    def system(self, content: str | Sequence[Block], place: str) -> None:
        """System text, wherever it stands."""
        if not isinstance(content, str):
            content = _joined([block for block in content if not (block.text or "").startswith(_ATTRIBUTION)], place)
        if content:
            self._system.append(content)

    def turn(self, turn: Turn, index: int, *, is_last: bool) -> None:
        """The next turn."""
        role, content = turn.role, turn.content
        if role == "user":
            if not content:
                raise InvalidRequest(
                    f"'messages[{index}].content' is empty; a user message must say something.",
                    param=f"messages[{index}].content",
                )
            self._append(Message(role, content if isinstance(content, str) else self._user(content, index)))
        elif role == "assistant":
            if not content and not is_last:
                raise InvalidRequest(
                    f"'messages[{index}].content' is empty; only the last message may be.",
                    param=f"messages[{index}].content",
                )
            self._append(Message(role, content) if isinstance(content, str) else self._assistant(content, index))
        elif role == "system":
            self.system(content, f"messages[{index}].content")
        else:
            param = f"messages[{index}].role"
            raise InvalidRequest(f"'{param}' must be user or assistant.", param=param)

    def done(self) -> tuple[tuple[Message, ...], str]:
        """Everything, once all turns were given."""
        messages, prefill = self._messages, ""
        if messages and messages[-1].role == "assistant":
            if isinstance(messages[-1], CallTurn):
                raise InvalidRequest(
                    "'messages' ends with a tool_use block; send its tool_result in a user message.", param="messages"
                )
            prefill = messages.pop().content
            if prefill != prefill.rstrip():
                raise InvalidRequest(
                    "The last message is the beginning of the answer, and must not end with white space.",
                    param="messages",
                )
        if not messages:
            raise InvalidRequest("'messages' has no user message; send at least one.", param="messages")
        if self._system:
            messages.insert(0, Message("system", _BREAK.join(self._system)))
        return tuple(messages), prefill

    def _append(self, message: Message) -> None:
        """Consecutive messages of the assistant are one; a turn of tool results only leaves no text behind."""
        messages = self._messages
        last = messages[-1] if messages else None
        if message.role == "user" and not message.content and isinstance(last, ToolResult):
            return
        if last is not None and last.role == message.role == "assistant":
            messages[-1] = _merged(last, message)
        else:
            messages.append(message)

    def _user(self, blocks: Sequence[Block], index: int) -> str:
        """Files the tool results, which answer what came before, and returns the text."""
        texts = []
        for number, block in enumerate(blocks):
            place = f"messages[{index}].content[{number}]"
            if block.type == "tool_result":
                self._messages.append(self._result(block, place))
            else:
                texts.append(_text(block, place))
        return _BREAK.join([text for text in texts if text])

    def _result(self, block: Block, place: str) -> ToolResult:
        call_id = block.tool_use_id
        name = None if call_id is None else self._tools.get(call_id)
        if call_id is None or name is None:
            raise InvalidRequest(
                f"'{place}.tool_use_id' must be the id of a tool_use block in a message before.",
                param=f"{place}.tool_use_id",
            )
        content = block.content
        if not isinstance(content, str):
            content = _joined(content, f"{place}.content") if content else ""
        return ToolResult("tool", content, call_id, name)

    def _assistant(self, blocks: Sequence[Block], index: int) -> Message:
        texts, calls = [], []
        for number, block in enumerate(blocks):
            place = f"messages[{index}].content[{number}]"
            if block.type == "tool_use":
                calls.append(self._call(block, place))
            elif block.type not in _THOUGHTS:
                texts.append(_text(block, place))
        content = _BREAK.join([text for text in texts if text])
        return CallTurn("assistant", content, tuple(calls)) if calls else Message("assistant", content)

    def _call(self, block: Block, place: str) -> ToolCall:
        for name in ("id", "name"):
            if not getattr(block, name):
                raise InvalidRequest(f"'{place}.{name}' is missing.", param=f"{place}.{name}")
        call_id, tool, given = block.id or "", block.name or "", bytes(block.input)
        if given[:1] != b"{":
            raise InvalidRequest(f"'{place}.input' must be an object.", param=f"{place}.input")
        if call_id in self._tools:
            raise InvalidRequest(f"'{place}.id' repeats the id of another tool_use block.", param=f"{place}.id")
        self._tools[call_id] = tool
        return ToolCall(call_id, tool, given.decode("utf-8"))


def joined_turns(messages: Sequence[Message]) -> Sequence[Message]:
    """Consecutive messages of the user as one each."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role == "user":
            joined[-1] = _merged(joined[-1], message)
        else:
            joined.append(message)
    return joined


def _merged(first: Message, second: Message) -> Message:
    content = _BREAK.join([message.content for message in (first, second) if message.content])
    calls = [call for message in (first, second) if isinstance(message, CallTurn) for call in message.calls]
    return CallTurn(first.role, content, tuple(calls)) if calls else Message(first.role, content)


def _joined(blocks: Sequence[Block], place: str) -> str:
    texts = [_text(block, f"{place}[{number}]") for number, block in enumerate(blocks)]
    return _BREAK.join([text for text in texts if text])


def _text(block: Block, place: str) -> str:
    if block.type != "text":
        raise InvalidRequest(
            f"'{place}.type' is not supported by this service; only blocks of text and of tools are.",
            param=f"{place}.type",
        )
    if block.text is None:
        raise InvalidRequest(f"'{place}.text' is missing.", param=f"{place}.text")
    return block.text
