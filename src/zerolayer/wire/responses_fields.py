"""The body of ``POST /v1/responses`` as it comes in, member by member.

Source: https://platform.openai.com/docs/api-reference/responses/create. None stands for absent and for null. What
is not listed is ignored. Members of type ``Raw`` are only looked at to be refused, or to be repeated in the reply.
"""

from __future__ import annotations

from msgspec import Raw, Struct, field


class Part(Struct):
    """One part of an item's content: a text of any of the three types that carry one."""

    type: str
    text: str | None = None
    refusal: str | None = None


class Item(Struct):
    """One item of ``input``; without a type it is a message."""

    type: str = "message"
    role: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[Part] | None = None


class Format(Struct):
    """``text.format``."""

    type: str
    name: str | None = None
    schema: Raw = field(default_factory=Raw)
    strict: bool | None = None


class Text(Struct):
    """``text``."""

    format: Format | None = None


class FunctionTool(Struct):
    """One of ``tools``; only those of the type ``function`` are offered to the model."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: Raw = field(default_factory=Raw)
    strict: bool | None = None


class NamedTool(Struct):
    """A tool that ``tool_choice`` names."""

    type: str
    name: str = ""


class Choice(Struct):
    """``tool_choice`` where it is an object: one tool by name, or ``allowed_tools``."""

    type: str
    name: str = ""
    mode: str = "auto"
    tools: list[NamedTool] = field(default_factory=list)


class ResponseBody(Struct, kw_only=True):
    """``POST /v1/responses``."""

    model: str | None = None
    input: str | list[Item] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    stream: bool | None = None
    text: Text | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: str | Choice | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    service_tier: str | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Raw = field(default_factory=Raw)
    prompt: Raw = field(default_factory=Raw)
    deadline_ms: float | None = None
