"""Bodies of Anthropic's Messages API to ``Request``: every number range-checked, every refusal names its member.

Turns become messages in ``anthropic_turns``; replies are in ``anthropic_reply`` and ``anthropic_stream``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.wire.anthropic_fields import MessagesBody, OutputFormat, Thinking
from zerolayer.wire.anthropic_fields import Tool as ToolFields
from zerolayer.wire.anthropic_fields import ToolChoice as ChoiceFields
from zerolayer.wire.anthropic_turns import conversation
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.json_body import decode_strict
from zerolayer.wire.schema import OutputFormat as Output
from zerolayer.wire.schema import Request, Route, Sampling, Tool, ToolChoice, ToolMode
from zerolayer.wire.tools import check_choice, check_output, check_tools

_INT32_MAX: Final = 2**31 - 1
_HOTTEST: Final = 1.0  # Anthropic's upper end of the temperature
_LEAST_TOP_P: Final = 1e-6  # 0 is allowed, and leaves the most likely token only
_LEAST_BUDGET: Final = 1024
_NAME_CHARS: Final = 128
_TIERS: Final = frozenset({"auto", "standard_only"})
_THINKING: Final = frozenset({"enabled", "disabled", "adaptive"})
_MODES: Final = {"auto": ToolMode.AUTO, "any": ToolMode.REQUIRED, "tool": ToolMode.REQUIRED, "none": ToolMode.NONE}

_decoder = msgspec.json.Decoder(MessagesBody)


def decode_messages(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/messages``. Raises InvalidRequest, BodyTooLarge."""
    fields = decode_strict(_decoder, body, limits.body_bytes)
    if fields.max_tokens is None:
        raise InvalidRequest("'max_tokens' is missing; name the longest answer that you want.", param="max_tokens")
    return _request(fields, limits)


def decode_count(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/messages/count_tokens``: the same, and the length of the answer does not matter."""
    fields = decode_strict(_decoder, body, limits.body_bytes)
    fields.max_tokens = None
    return _request(fields, limits)


def _request(fields: MessagesBody, limits: BodyLimits) -> Request:
    if not fields.model:
        raise InvalidRequest("'model' is missing; GET /v1/models lists the names.", param="model")
    _check_ignored(fields)
    messages, prefill = conversation(fields.messages, fields.system, limits)
    tools = _tools(fields.tools, limits) if fields.tools else ()
    choice = _choice(fields.tool_choice, tools) if fields.tool_choice is not None else ToolChoice()
    output = _output(fields, limits)
    if output is not None and prefill:
        raise InvalidRequest(
            "'messages' must end with a user message where 'output_config.format' is given.", param="messages"
        )
    given = fields.tool_choice
    return Request(
        route=Route.MESSAGES,
        model=fields.model,
        messages=messages,
        sampling=_sampling(fields, limits),
        max_tokens=_max_tokens(fields.max_tokens, limits),
        stop=_stop(fields.stop_sequences, limits) if fields.stop_sequences else (),
        stream=fields.stream is True,
        deadline_ms=None if fields.deadline_ms is None else int(fields.deadline_ms),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=given is None or given.disable_parallel_tool_use is not True,
        output=output,
        prefill=prefill,
        fills_slot=True,
    )


def _within(param: str, value: float, low: float, high: float, *, limit: str = "") -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"'{param}' must be between {low:g} and {high:g}.", param=param, limit=limit)


def _check_ignored(fields: MessagesBody) -> None:
    """What has no effect here must still be well formed."""
    if fields.service_tier is not None and fields.service_tier not in _TIERS:
        raise InvalidRequest("'service_tier' must be auto or standard_only.", param="service_tier")
    if fields.thinking is not None:
        _check_thinking(fields.thinking, fields.max_tokens)


def _check_thinking(thinking: Thinking, max_tokens: int | None) -> None:
    if thinking.type not in _THINKING:
        raise InvalidRequest("'thinking.type' must be enabled, disabled or adaptive.", param="thinking.type")
    budget = thinking.budget_tokens
    if budget is None:
        if thinking.type == "enabled":
            raise InvalidRequest("'thinking.budget_tokens' is missing.", param="thinking.budget_tokens")
        return
    _within("thinking.budget_tokens", budget, _LEAST_BUDGET, _INT32_MAX)
    if max_tokens is not None and budget >= max_tokens:
        raise InvalidRequest(
            "'thinking.budget_tokens' must be smaller than 'max_tokens'.", param="thinking.budget_tokens"
        )


def _max_tokens(given: int | None, limits: BodyLimits) -> int | None:
    """At most the contract's: here the member is no wish but a bound, and clients send that of the model they know."""
    if given is None:
        return None
    if not 1 <= given <= _INT32_MAX:
        raise InvalidRequest(
            f"'max_tokens' must be between 1 and {_INT32_MAX}.", param="max_tokens", limit="max_tokens"
        )
    return limits.moved("max_tokens", given, 1, limits.max_tokens)


def _sampling(fields: MessagesBody, limits: BodyLimits) -> Sampling:
    top_p, top_k = fields.top_p, fields.top_k
    if top_p is not None:
        _within("top_p", top_p, 0, 1)
    if top_k is not None and not 0 <= top_k <= _INT32_MAX:
        raise InvalidRequest(f"'top_k' must be between 0 and {_INT32_MAX}.", param="top_k")
    return Sampling(
        temperature=_temperature(fields.temperature, limits),
        top_p=1.0 if top_p is None else max(top_p, _LEAST_TOP_P),
        top_k=top_k or 0,
    )


def _temperature(given: float | None, limits: BodyLimits) -> float:
    low, high = limits.temperature[0], min(_HOTTEST, limits.temperature[1])
    if given is None:
        return min(max(1.0, low), high)
    _within("temperature", given, 0, _HOTTEST)
    if limits.outside == "refuse":
        _within("temperature", given, low, high, limit="temperature")
    return limits.moved("temperature", given, low, high)


def _stop(given: list[str], limits: BodyLimits) -> tuple[str, ...]:
    if len(given) > limits.stop:
        raise InvalidRequest(
            f"'stop_sequences' must have at most {limits.stop} strings.", param="stop_sequences", limit="stop"
        )
    for text in given:
        if not 1 <= len(text) <= limits.stop_chars:
            raise InvalidRequest(
                f"Each string of 'stop_sequences' must have 1 to {limits.stop_chars} characters.",
                param="stop_sequences",
            )
    return tuple(given)


def _tools(given: list[ToolFields], limits: BodyLimits) -> tuple[Tool, ...]:
    if len(given) > limits.tools:
        raise InvalidRequest(f"'tools' must have at most {limits.tools} tools.", param="tools", limit="tools")
    tools = [_tool(fields, f"tools[{index}]") for index, fields in enumerate(given)]
    return check_tools(tools, limits, [f"tools[{index}]" for index in range(len(tools))], name_chars=_NAME_CHARS)


def _tool(fields: ToolFields, place: str) -> Tool:
    if fields.type not in (None, "custom"):
        raise InvalidRequest(
            f"'{place}.type' is not supported by this service: it has no tools of its own. "
            "Send tools with a name and an input_schema.",
            param=f"{place}.type",
        )
    if fields.name is None:
        raise InvalidRequest(f"'{place}.name' is missing.", param=f"{place}.name")
    schema = bytes(fields.input_schema)
    if schema[:1] != b"{":
        raise InvalidRequest(f"'{place}.input_schema' must be an object.", param=f"{place}.input_schema")
    return Tool(fields.name, fields.description or "", schema, fields.strict is True)


def _choice(given: ChoiceFields, tools: tuple[Tool, ...]) -> ToolChoice:
    mode = _MODES.get(given.type)
    if mode is None:
        raise InvalidRequest("'tool_choice.type' must be auto, any, tool or none.", param="tool_choice.type")
    if given.type != "tool":
        return check_choice(ToolChoice(mode), tools)
    if given.name is None:
        raise InvalidRequest("'tool_choice.name' is missing.", param="tool_choice.name")
    return check_choice(ToolChoice(mode, (given.name,)), tools)


def _output(fields: MessagesBody, limits: BodyLimits) -> Output | None:
    config = fields.output_config
    if config is not None and config.format is not None:
        return _schema(config.format, limits, "output_config.format")
    return None if fields.output_format is None else _schema(fields.output_format, limits, "output_format")


def _schema(given: OutputFormat, limits: BodyLimits, param: str) -> Output:
    if given.type != "json_schema":
        raise InvalidRequest(f"'{param}.type' must be json_schema.", param=f"{param}.type")
    schema = bytes(given.schema)
    if schema[:1] != b"{":
        raise InvalidRequest(f"'{param}.schema' must be an object.", param=f"{param}.schema")
    return check_output(Output(schema), limits, f"{param}.schema")
