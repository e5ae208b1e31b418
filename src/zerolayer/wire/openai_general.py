"""OpenAI request bodies of every kind to ``Request``: every number range-checked, every refusal names its member.

What nearly every client sends is decoded in ``openai``, which leaves the rest to this.
"""

from __future__ import annotations

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.wire import openai_tools
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.json_body import decode_strict
from zerolayer.wire.openai_fields import ChatBody, ChatMessage, CommonBody, CompletionBody
from zerolayer.wire.openai_parameters import (
    answers,
    max_tokens,
    sampling,
    stop,
    stream_options,
    tier,
    unsupported,
    within,
)
from zerolayer.wire.openai_prompt import prompts
from zerolayer.wire.schema import CallTurn, Message, Request, Route, ToolResult

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_NULL = msgspec.Raw(b"null")
_NONE = msgspec.Raw(b'"none"')

_CHAT = msgspec.json.Decoder(ChatBody)
_COMPLETION = msgspec.json.Decoder(CompletionBody)


def decode_any_chat(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/chat/completions``. Raises InvalidRequest, BodyTooLarge."""
    fields = decode_strict(_CHAT, body, limits.body_bytes)
    _refuse_unsupported_chat(fields)
    offered = openai_tools.tools(fields.tools, limits)
    options = stream_options(fields)
    request = Request(
        route=Route.CHAT,
        model=_model(fields),
        messages=_messages(fields.messages, limits),
        sampling=sampling(fields, limits, _chat_logprobs(fields, limits)),
        max_tokens=max_tokens(fields, limits, least=0),
        stop=stop(fields.stop, limits),
        stream=fields.stream is True,
        include_usage=options.include_usage is True,
        continuous_usage=options.continuous_usage_stats is True,
        ignore_eos=fields.ignore_eos is True,
        deadline_ms=None if fields.deadline_ms is None else int(fields.deadline_ms),
        tier=tier(fields),
        n=answers(fields.n, 1, limits),
        tools=offered,
        tool_choice=openai_tools.tool_choice(fields, offered),
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        output=openai_tools.output(fields.response_format, limits),
    )
    if request.max_tokens == 0 and not request.fills_cache:
        raise InvalidRequest(
            "'max_tokens' 0 asks for no answer, only that the prompt be read; leave out 'n' and 'response_format'.",
            param="max_tokens",
        )
    return request


def decode_any_completion(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/completions``. Raises InvalidRequest, BodyTooLarge."""
    fields = decode_strict(_COMPLETION, body, limits.body_bytes)
    _refuse_unsupported_completion(fields)
    top_logprobs = fields.logprobs
    if top_logprobs is not None:
        within("logprobs", top_logprobs, 0, limits.top_logprobs, limit="top_logprobs")
    first, *further = prompts(fields.prompt)
    options = stream_options(fields)
    return Request(
        route=Route.COMPLETIONS,
        model=_model(fields),
        prompt=first,
        further=tuple(further),
        sampling=sampling(fields, limits, top_logprobs),
        max_tokens=max_tokens(fields, limits, least=0),
        stop=stop(fields.stop, limits),
        stream=fields.stream is True,
        include_usage=options.include_usage is True,
        continuous_usage=options.continuous_usage_stats is True,
        ignore_eos=fields.ignore_eos is True,
        echo=fields.echo is True,
        deadline_ms=None if fields.deadline_ms is None else int(fields.deadline_ms),
        tier=tier(fields),
        n=answers(fields.n, 1 + len(further), limits),
    )


def _refuse_unsupported_chat(fields: ChatBody) -> None:
    if fields.functions and fields.function_call != _NONE:
        raise unsupported("functions", "send tools instead")
    if fields.modalities and any(kind != "text" for kind in fields.modalities):
        raise unsupported("modalities", 'only "text" is')
    if _is_given(fields.audio):
        raise unsupported("audio", "leave it out")
    if _is_given(fields.web_search_options):
        raise unsupported("web_search_options", "leave it out")


def _refuse_unsupported_completion(fields: CompletionBody) -> None:
    if fields.best_of is not None and fields.best_of != (fields.n or 1):
        raise unsupported("best_of", "leave it out, or send the same number as n")
    if fields.suffix:
        raise unsupported("suffix", "leave it out")


def _is_given(raw: msgspec.Raw) -> bool:
    return bool(raw) and raw != _NULL


def _model(fields: CommonBody) -> str:
    if not fields.model:
        raise InvalidRequest("'model' is missing; GET /v1/models lists the names.", param="model")
    return fields.model


def _messages(given: list[ChatMessage] | None, limits: BodyLimits) -> tuple[Message, ...]:
    if not given:
        raise InvalidRequest("'messages' is missing or empty; send at least one message.", param="messages")
    if len(given) > limits.json_messages:
        raise InvalidRequest(
            f"'messages' must have at most {limits.json_messages} messages.", param="messages", limit="json_messages"
        )
    names: dict[str, str] = {}  # of called tools, by the ids of the calls
    return tuple([_message(message, f"messages[{index}]", names) for index, message in enumerate(given)])


def _message(given: ChatMessage, place: str, names: dict[str, str]) -> Message:
    role = _ROLES.get(given.role)
    if role is None:
        param = f"{place}.role"
        if given.role == "function":
            raise unsupported(param, "send results in messages of the role tool")
        raise InvalidRequest(f"'{param}' must be system, developer, user, assistant or tool.", param=param)
    if _is_given(given.function_call):
        raise unsupported(f"{place}.function_call", "send tool_calls instead")
    if role == "tool":
        if not given.tool_call_id:
            param = f"{place}.tool_call_id"
            raise InvalidRequest(f"'{param}' is missing; send the id of the call.", param=param)
        content = _content(given, role, place)
        return ToolResult(role, content, given.tool_call_id, names.get(given.tool_call_id, ""))
    if not given.tool_calls:
        return Message(role, _content(given, role, place))
    if role != "assistant":
        param = f"{place}.tool_calls"
        raise InvalidRequest(f"'{param}' is allowed only in messages of the assistant.", param=param)
    calls = openai_tools.calls(given.tool_calls, place)
    names.update((call.id, call.name) for call in calls)
    return CallTurn(role, _content(given, role, place), calls)


def _content(given: ChatMessage, role: str, place: str) -> str:
    content = given.content
    if isinstance(content, str):
        return content
    param = f"{place}.content"
    if content is None:
        if role != "assistant":
            raise InvalidRequest(f"'{param}' must be a string or a list of text parts.", param=param)
        return ""
    for number, part in enumerate(content):
        if part.type != "text":
            raise unsupported(f"{param}[{number}].type", 'only parts of the type "text" are')
        if part.text is None:
            raise InvalidRequest(f"'{param}[{number}].text' is missing.", param=f"{param}[{number}].text")
    # Parts are paragraphs of one text, as vLLM and llama.cpp have it.
    return "\n".join([part.text or "" for part in content])


def _chat_logprobs(fields: ChatBody, limits: BodyLimits) -> int | None:
    top = fields.top_logprobs
    if not fields.logprobs:
        if top is not None:
            raise InvalidRequest("'top_logprobs' needs logprobs to be true.", param="top_logprobs")
        return None
    if top is None:
        return 0
    within("top_logprobs", top, 0, limits.top_logprobs, limit="top_logprobs")
    return top
