"""The body of Anthropic's Messages API as it comes in, member by member.

Source: https://docs.anthropic.com/en/api/messages. None stands for absent and for null, which mean the same. What is
not listed is ignored (``cache_control`` too: what is kept of a prompt is found by its content, without being asked).
"""

from __future__ import annotations

from msgspec import Raw, Struct, field


class Block(Struct):
    """One block of a content: ``text``, ``tool_use``, ``tool_result``, or one of a turn of thinking."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = field(default_factory=Raw)
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None


class Turn(Struct):
    """One message. Claude Code sends ``system`` items among them, too."""

    role: str
    content: str | list[Block]


class Tool(Struct):
    """A tool of the client. Anthropic's own have another ``type`` and no schema."""

    name: str | None = None
    description: str | None = None
    input_schema: Raw = field(default_factory=Raw)
    type: str | None = None
    strict: bool | None = None


class ToolChoice(Struct):
    """``tool_choice``; ``name`` belongs to the type "tool"."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(Struct):
    """``metadata``."""

    user_id: str | None = None


class Thinking(Struct):
    """``thinking``."""

    type: str
    budget_tokens: int | None = None


class OutputFormat(Struct):
    """What the answer must look like."""

    type: str
    schema: Raw = field(default_factory=Raw)


class OutputConfig(Struct):
    """``output_config``; the rest of it is about models that think."""

    format: OutputFormat | None = None


class MessagesBody(Struct, kw_only=True):
    """``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

    model: str | None = None
    messages: list[Turn] | None = None
    system: str | list[Block] | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: Metadata | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    service_tier: str | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    deadline_ms: float | None = None
