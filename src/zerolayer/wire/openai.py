"""OpenAI request bodies to ``Request``: every number range-checked, every refusal names its member.

Replies are in ``openai_reply`` and ``openai_stream``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.json_body import decode_strict
from zerolayer.wire.openai_fields import ChatBody, ChatMessage, CommonBody, CompletionBody
from zerolayer.wire.openai_plain import decode_plain
from zerolayer.wire.schema import Message, Request, Route, Sampling, Tier

_INT32_MAX = 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_UINT64_MASK = 2**64 - 1
_CHOICES = 1  # a Request asks for one answer

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TOOL_ROLES = frozenset({"tool", "function"})
_NULL = msgspec.Raw(b"null")
_NONE = msgspec.Raw(b'"none"')

_TIERS = {"auto": Tier.DEFAULT, "default": Tier.DEFAULT, "flex": Tier.FLEX, "priority": Tier.PRIORITY}
_CHAT = msgspec.json.Decoder(ChatBody)
_COMPLETION = msgspec.json.Decoder(CompletionBody)


def decode_chat(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/chat/completions``. Raises InvalidRequest, BodyTooLarge."""
    plain = decode_plain(body, limits)
    if plain is not None:
        return plain
    fields = decode_strict(_CHAT, body, limits.body_bytes)
    _refuse_unsupported_chat(fields)
    return Request(
        route=Route.CHAT,
        model=_model(fields),
        messages=_messages(fields.messages, limits),
        sampling=_sampling(fields, limits, _chat_logprobs(fields, limits)),
        max_tokens=_max_tokens(fields, limits),
        stop=_stop(fields, limits),
        stream=fields.stream is True,
        include_usage=_include_usage(fields),
        ignore_eos=fields.ignore_eos is True,
        deadline_ms=None if fields.deadline_ms is None else int(fields.deadline_ms),
        tier=_tier(fields),
    )


def decode_completion(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/completions``. Raises InvalidRequest, BodyTooLarge."""
    fields = decode_strict(_COMPLETION, body, limits.body_bytes)
    _refuse_unsupported_completion(fields)
    top_logprobs = fields.logprobs
    if top_logprobs is not None:
        _within("logprobs", top_logprobs, 0, limits.top_logprobs)
    return Request(
        route=Route.COMPLETIONS,
        model=_model(fields),
        prompt=_prompt(fields.prompt),
        sampling=_sampling(fields, limits, top_logprobs),
        max_tokens=_max_tokens(fields, limits),
        stop=_stop(fields, limits),
        stream=fields.stream is True,
        include_usage=_include_usage(fields),
        ignore_eos=fields.ignore_eos is True,
        echo=fields.echo is True,
        deadline_ms=None if fields.deadline_ms is None else int(fields.deadline_ms),
        tier=_tier(fields),
    )


def _within(param: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"'{param}' must be between {low:g} and {high:g}.", param=param)


def _unsupported(param: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"'{param}' is not supported by this service; {remedy}.", param=param)


def _refuse_unsupported_common(fields: CommonBody, limits: BodyLimits) -> None:
    if fields.logit_bias:
        raise _unsupported("logit_bias", "leave it out")
    if fields.n is not None:
        allowed = min(limits.n, _CHOICES)
        if not 1 <= fields.n <= allowed:
            raise InvalidRequest(f"'n' must be {allowed}; send one request for each answer.", param="n")


def _refuse_unsupported_chat(fields: ChatBody) -> None:
    if fields.tools and fields.tool_choice != _NONE:
        raise _unsupported("tools", 'leave it out or send tool_choice "none"')
    if fields.functions and fields.function_call != _NONE:
        raise _unsupported("functions", 'leave it out or send function_call "none"')
    if fields.response_format is not None and fields.response_format.type != "text":
        raise _unsupported("response_format", 'only the type "text" is')
    if fields.modalities and any(kind != "text" for kind in fields.modalities):
        raise _unsupported("modalities", 'only "text" is')
    if _is_given(fields.audio):
        raise _unsupported("audio", "leave it out")
    if _is_given(fields.web_search_options):
        raise _unsupported("web_search_options", "leave it out")


def _refuse_unsupported_completion(fields: CompletionBody) -> None:
    if fields.best_of is not None and fields.best_of != 1:
        raise _unsupported("best_of", "only 1 is")
    if fields.suffix:
        raise _unsupported("suffix", "leave it out")
    if fields.echo and fields.logprobs is not None:
        raise _unsupported("echo", "not together with logprobs")


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
        raise InvalidRequest(f"'messages' must have at most {limits.json_messages} messages.", param="messages")
    return tuple([_message(message, index) for index, message in enumerate(given)])


def _message(given: ChatMessage, index: int) -> Message:
    role = _ROLES.get(given.role)
    if role is None:
        param = f"messages[{index}].role"
        if given.role in _TOOL_ROLES:
            raise _unsupported(param, "messages of the roles tool and function are not")
        raise InvalidRequest(f"'{param}' must be system, developer, user or assistant.", param=param)
    if given.tool_calls or _is_given(given.function_call):
        raise _unsupported(f"messages[{index}].tool_calls", "leave it out")
    content = given.content
    if isinstance(content, str):
        return Message(role, content)
    param = f"messages[{index}].content"
    if content is None:
        if role != "assistant":
            raise InvalidRequest(f"'{param}' must be a string or a list of text parts.", param=param)
        return Message(role, "")
    for number, part in enumerate(content):
        if part.type != "text":
            raise _unsupported(f"{param}[{number}].type", 'only parts of the type "text" are')
        if part.text is None:
            raise InvalidRequest(f"'{param}[{number}].text' is missing.", param=f"{param}[{number}].text")
    # Parts are paragraphs of one text, as vLLM and llama.cpp have it.
    return Message(role, "\n".join([part.text or "" for part in content]))


def _prompt(given: str | Sequence[str | int | list[int]] | None) -> str | tuple[int, ...]:
    if isinstance(given, str):
        return given
    if not given:
        raise InvalidRequest("'prompt' is missing or empty; send a string or a list of token ids.", param="prompt")
    kinds = set(map(type, given))
    if kinds == {int}:
        return _token_ids(cast(Sequence[int], given))
    if len(given) > 1 and kinds <= {str, list}:
        raise InvalidRequest("'prompt' must hold one prompt; send one request for each.", param="prompt")
    only = given[0]
    if len(given) > 1 or isinstance(only, int):
        raise InvalidRequest("'prompt' must be a string or a list of token ids, not a mixture.", param="prompt")
    if isinstance(only, str):
        return only
    if not only:
        raise InvalidRequest("'prompt' must have at least one token id.", param="prompt")
    return _token_ids(only)


def _token_ids(given: Sequence[int]) -> tuple[int, ...]:
    ids = tuple(given)
    if min(ids) < 0 or max(ids) > _INT32_MAX:
        raise InvalidRequest(f"'prompt' must have token ids between 0 and {_INT32_MAX}.", param="prompt")
    return ids


def _chat_logprobs(fields: ChatBody, limits: BodyLimits) -> int | None:
    top = fields.top_logprobs
    if not fields.logprobs:
        if top is not None:
            raise InvalidRequest("'top_logprobs' needs logprobs to be true.", param="top_logprobs")
        return None
    if top is None:
        return 0
    _within("top_logprobs", top, 0, limits.top_logprobs)
    return top


def _sampling(fields: CommonBody, limits: BodyLimits, top_logprobs: int | None) -> Sampling:
    _refuse_unsupported_common(fields, limits)
    top_p, min_p = fields.top_p, fields.min_p
    if top_p is not None and not 0 < top_p <= 1:
        raise InvalidRequest("'top_p' must be above 0 and at most 1.", param="top_p")
    if min_p is not None:
        _within("min_p", min_p, 0, 1)
    top_k = fields.top_k
    if top_k is not None and not -1 <= top_k <= _INT32_MAX:
        raise InvalidRequest(f"'top_k' must be between 0 and {_INT32_MAX}, or -1 for off.", param="top_k")
    repetition = fields.repetition_penalty
    if repetition is not None and not 0 < repetition <= 10:
        raise InvalidRequest("'repetition_penalty' must be above 0 and at most 10.", param="repetition_penalty")
    presence, frequency, seed = fields.presence_penalty, fields.frequency_penalty, fields.seed
    if presence is not None:
        _within("presence_penalty", presence, -2, 2)
    if frequency is not None:
        _within("frequency_penalty", frequency, -2, 2)
    if seed is not None and not _INT64_MIN <= seed <= _INT64_MAX:
        raise InvalidRequest("'seed' must be a signed 64-bit integer.", param="seed")
    return Sampling(
        temperature=_temperature(fields.temperature, limits),
        top_p=1.0 if top_p is None else top_p,
        top_k=0 if top_k is None or top_k < 0 else top_k,
        min_p=min_p or 0.0,
        repetition_penalty=1.0 if repetition is None else repetition,
        presence_penalty=presence or 0.0,
        frequency_penalty=frequency or 0.0,
        seed=None if seed is None else seed & _UINT64_MASK,
        top_logprobs=top_logprobs,
    )


def _temperature(given: float | None, limits: BodyLimits) -> float:
    low, high = limits.temperature
    if given is None:
        return min(max(1.0, low), high)
    if given < 0 or (limits.outside == "refuse" and not low <= given <= high):
        raise InvalidRequest(f"'temperature' must be between {low:g} and {high:g}.", param="temperature")
    return min(max(given, low), high)


def _max_tokens(fields: CommonBody, limits: BodyLimits) -> int | None:
    old, new = fields.max_tokens, fields.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidRequest("'max_tokens' and 'max_completion_tokens' mean the same; send one.", param="max_tokens")
    param = "max_tokens" if new is None else "max_completion_tokens"
    given = old if new is None else new
    if given is None:
        return None
    if given < 1 or (limits.outside == "refuse" and given > limits.max_tokens):
        raise InvalidRequest(f"'{param}' must be between 1 and {limits.max_tokens}.", param=param)
    return min(given, limits.max_tokens)


def _stop(fields: CommonBody, limits: BodyLimits) -> tuple[str, ...]:
    given = fields.stop
    if given is None:
        return ()
    stops = (given,) if isinstance(given, str) else tuple(given)
    if len(stops) > limits.stop:
        raise InvalidRequest(f"'stop' must have at most {limits.stop} strings.", param="stop")
    for text in stops:
        if not 1 <= len(text) <= limits.stop_chars:
            raise InvalidRequest(f"Each string of 'stop' must have 1 to {limits.stop_chars} characters.", param="stop")
    return stops


def _tier(fields: CommonBody) -> Tier:
    tier = _TIERS.get(fields.service_tier or "auto")
    if tier is None:
        raise InvalidRequest("'service_tier' must be auto, default, flex or priority.", param="service_tier")
    return tier


def _include_usage(fields: CommonBody) -> bool:
    options = fields.stream_options
    if options is None:
        return False
    if fields.stream is not True:
        raise InvalidRequest("'stream_options' is allowed only with stream true.", param="stream_options")
    return options.include_usage is True
