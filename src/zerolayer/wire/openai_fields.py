"""The bodies of OpenAI's chat completions and completions as they come in, member by member.

Source: https://platform.openai.com/docs/api-reference. None stands for absent and for null, which mean the same. What
is not listed is ignored. Members of type ``Raw`` are only looked at to be refused: they ask for something that would
change the answer and that this service does not do.
"""

from __future__ import annotations

from msgspec import Raw, Struct, field


class StreamOptions(Struct):
    """``stream_options``."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchema(Struct):
    """``response_format.json_schema``. Its name and description are for people, ``strict`` is always so."""

    schema: Raw = field(default_factory=Raw)


class ResponseFormat(Struct):
    """``response_format``."""

    type: str
    json_schema: JsonSchema | None = None


class GivenFunction(Struct):
    """A function that may be called."""

    name: str
    description: str | None = None
    parameters: Raw = field(default_factory=Raw)
    strict: bool | None = None


class GivenTool(Struct):
    """One of ``tools``; only ``{"type": "function", "function": ...}`` passes."""

    type: str
    function: GivenFunction | None = None


class FunctionName(Struct):
    """A function by its name."""

    name: str


class NamedTool(Struct):
    """A tool by its name, which stands in ``function`` or beside ``type``."""

    function: FunctionName | None = None
    name: str = ""


class AllowedTools(Struct):
    """``tool_choice.allowed_tools``."""

    mode: str
    tools: list[NamedTool]


class GivenChoice(Struct):
    """``tool_choice`` where it is an object."""

    type: str
    function: FunctionName | None = None
    allowed_tools: AllowedTools | None = None


class CalledFunction(Struct):
    """What was called: ``arguments`` is a text, which should be JSON."""

    name: str
    arguments: str = ""


class GivenCall(Struct):
    """One of the ``tool_calls`` of a message."""

    id: str
    type: str = "function"
    function: CalledFunction | None = None


class ContentPart(Struct):
    """One part of a message's content; only ``{"type": "text", "text": ...}`` passes."""

    type: str
    text: str | None = None


class ChatMessage(Struct):
    """One message."""

    role: str
    content: str | list[ContentPart] | None = None
    tool_calls: list[GivenCall] | None = None
    tool_call_id: str | None = None
    function_call: Raw = field(default_factory=Raw)


class CommonBody(Struct, kw_only=True):
    """Members that both routes have."""

    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    deadline_ms: float | None = None
    service_tier: str | None = None


class ChatBody(CommonBody, kw_only=True):
    """``POST /v1/chat/completions``."""

    messages: list[ChatMessage] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[GivenTool] | None = None
    tool_choice: str | GivenChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Raw] | None = None
    function_call: Raw = field(default_factory=Raw)
    response_format: ResponseFormat | None = None
    modalities: list[str] | None = None
    audio: Raw = field(default_factory=Raw)
    web_search_options: Raw = field(default_factory=Raw)


class CompletionBody(CommonBody, kw_only=True):
    """``POST /v1/completions``. ``logprobs`` is a number here."""

    prompt: str | list[str | int | list[int]] | None = None
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
