"""OpenAI's Responses API: bodies to ``Request``. Replies are in ``responses_reply``.

The service keeps nothing between two requests, so whatever refers to an earlier response is refused, with the remedy.
"""

from __future__ import annotations

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.json_body import decode_strict
from zerolayer.wire.openai_parameters import longest, nucleus, temperature, tier, unsupported, within
from zerolayer.wire.responses_fields import Choice, Format, FunctionTool, ResponseBody
from zerolayer.wire.responses_input import messages
from zerolayer.wire.schema import OutputFormat, Request, Route, Sampling, Tier, Tool, ToolChoice, ToolMode
from zerolayer.wire.tools import check_choice, check_output, check_tools

_NULL = msgspec.Raw(b"null")
_LOGPROBS = "message.output_text.logprobs"
_MOST_METADATA = 16
_RESEND = "nothing is kept between two requests: send the whole conversation as input"
_MODES = {"auto": ToolMode.AUTO, "none": ToolMode.NONE, "required": ToolMode.REQUIRED}

_BODY = msgspec.json.Decoder(ResponseBody)


class ResponseRequest(Request, frozen=True):
    """``told`` are the members of the request that every response object repeats: JSON, without the braces."""

    told: bytes = b""


class _ToldTool(msgspec.Struct):
    name: str
    description: str | None
    parameters: msgspec.Raw
    strict: bool
    type: str = "function"


class _ToldFormat(msgspec.Struct, omit_defaults=True):
    type: str
    name: str | None = None
    schema: msgspec.Raw | None = None
    strict: bool | None = None


class _ToldText(msgspec.Struct):
    format: _ToldFormat


class _ToldChoice(msgspec.Struct):
    type: str
    name: str


class _Reasoning(msgspec.Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None


class _Told(msgspec.Struct):
    """In the order of the API's reference."""

    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    temperature: float
    text: _ToldText
    tool_choice: str | _ToldChoice
    tools: list[_ToldTool]
    top_logprobs: int
    top_p: float
    user: str | None
    service_tier: str
    background: bool = False
    previous_response_id: str | None = None
    reasoning: _Reasoning = _Reasoning()
    store: bool = False
    truncation: str = "disabled"


def decode_response(body: bytes, limits: BodyLimits) -> ResponseRequest:
    """Decode the body of ``POST /v1/responses``. Raises InvalidRequest, BodyTooLarge."""
    fields = decode_strict(_BODY, body, limits.body_bytes)
    _refuse_unsupported(fields)
    if not fields.model:
        raise InvalidRequest("'model' is missing; GET /v1/models lists the names.", param="model")
    sampling = Sampling(
        temperature=temperature(fields.temperature, limits),
        top_p=nucleus(fields.top_p),
        top_logprobs=_top_logprobs(fields, limits),
    )
    tools = _tools(fields.tools or [], limits)
    choice = _choice(fields.tool_choice, tools)
    return ResponseRequest(
        route=Route.RESPONSES,
        model=fields.model,
        messages=messages(fields.instructions, fields.input, limits),
        sampling=sampling,
        max_tokens=longest("max_output_tokens", fields.max_output_tokens, limits),
        stream=fields.stream is True,
        deadline_ms=None if fields.deadline_ms is None else int(fields.deadline_ms),
        tier=tier(fields),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        output=_output(fields.text.format if fields.text else None, limits),
        told=_told(fields, sampling, tools),
    )


def _refuse_unsupported(fields: ResponseBody) -> None:
    if fields.previous_response_id is not None:
        raise unsupported("previous_response_id", _RESEND)
    if fields.conversation and fields.conversation != _NULL:
        raise unsupported("conversation", _RESEND)
    if fields.background:
        raise unsupported("background", "leave it out, and stream the response")
    if fields.prompt and fields.prompt != _NULL:
        raise unsupported("prompt", "send its text as instructions and input")
    if fields.metadata is not None and len(fields.metadata) > _MOST_METADATA:
        raise InvalidRequest(f"'metadata' must have at most {_MOST_METADATA} members.", param="metadata")


def _top_logprobs(fields: ResponseBody, limits: BodyLimits) -> int | None:
    top = fields.top_logprobs
    if top is not None:
        within("top_logprobs", top, 0, limits.top_logprobs, limit="top_logprobs")
    if _LOGPROBS in (fields.include or ()):
        return top or 0
    return top or None


def _tools(given: list[FunctionTool], limits: BodyLimits) -> tuple[Tool, ...]:
    """The functions among the tools, which the client calls itself.

    All others are offers that the model cannot take up here, such as a search of the web; they are left out, and the
    response, which repeats its tools, does not have them.
    """
    if len(given) > limits.tools:
        raise InvalidRequest(f"'tools' must have at most {limits.tools} tools.", param="tools", limit="tools")
    functions = {f"tools[{index}]": tool for index, tool in enumerate(given) if tool.type == "function"}
    tools = [
        Tool(tool.name, tool.description or "", _schema(tool.parameters), tool.strict is True)
        for tool in functions.values()
    ]
    return check_tools(tools, limits, list(functions))


def _schema(raw: msgspec.Raw) -> bytes:
    return bytes(raw) if raw and raw != _NULL else b""


def _choice(given: str | Choice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    if given is None:
        return ToolChoice()
    names: tuple[str, ...] = ()
    if isinstance(given, str):
        mode = _MODES.get(given)
    elif given.type == "function":
        mode, names = ToolMode.REQUIRED, (given.name,)
    elif given.type == "allowed_tools":
        mode, names = _MODES.get(given.mode), tuple([tool.name for tool in given.tools])
    else:
        mode = None
    if mode is None:
        raise InvalidRequest(
            "'tool_choice' must be auto, none or required, or name a function or allowed_tools.", param="tool_choice"
        )
    return check_choice(ToolChoice(mode, names), tools)


def _output(given: Format | None, limits: BodyLimits) -> OutputFormat | None:
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return OutputFormat(param="text.format")
    if given.type != "json_schema":
        raise unsupported("text.format.type", "only text, json_object and json_schema are")
    schema = _schema(given.schema)
    if not schema:
        raise InvalidRequest("'text.format.schema' is missing.", param="text.format.schema")
    return check_output(OutputFormat(schema), limits, "text.format.schema")


def _told(fields: ResponseBody, sampling: Sampling, tools: tuple[Tool, ...]) -> bytes:
    shown = _Told(
        instructions=fields.instructions,
        max_output_tokens=fields.max_output_tokens,
        metadata=fields.metadata or {},
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        temperature=sampling.temperature,
        text=_ToldText(_told_format(fields.text.format if fields.text else None)),
        tool_choice=_told_choice(fields.tool_choice),
        tools=[
            _ToldTool(tool.name, tool.description or None, msgspec.Raw(tool.parameters or b"null"), tool.strict)
            for tool in tools
        ],
        top_logprobs=fields.top_logprobs or 0,
        top_p=sampling.top_p,
        user=fields.user,
        service_tier=_TIER_NAMES[tier(fields)],
    )
    return msgspec.json.encode(shown)[1:-1]


_TIER_NAMES = {Tier.FLEX: "flex", Tier.DEFAULT: "default", Tier.PRIORITY: "priority"}


def _told_format(given: Format | None) -> _ToldFormat:
    if given is None:
        return _ToldFormat("text")
    schema = given.schema if _schema(given.schema) else None
    return _ToldFormat(given.type, given.name, schema, given.strict)


def _told_choice(given: str | Choice | None) -> str | _ToldChoice:
    if given is None:
        return "auto"
    if isinstance(given, str):
        return given
    return _ToldChoice("function", given.name) if given.type == "function" else given.mode
