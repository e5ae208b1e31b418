"""OpenAI request bodies to ``Request``; texts and usual numbers, which nearly every client sends, straight into it.

All checks that do not depend on the contract are made by msgspec while it reads, in C. Whatever is not known or not
accepted here goes the long way, in ``openai_general``, which understands everything and words every refusal; so here
is no refusal, only "not plain". Both ways give the same ``Request`` for the same body.

Replies are in ``openai_reply`` and ``openai_stream``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai_general import decode_any_chat, decode_any_completion
from zerolayer.wire.schema import Message, Request, Route, Sampling

_INT32_MAX = 2**31 - 1
_CHAT, _COMPLETIONS = Route.CHAT, Route.COMPLETIONS  # a member of an enumeration is dearer to name than a module's own
_ROLES = frozenset({"system", "user", "assistant"})

_FromTo1 = Annotated[float, Meta(ge=0, le=1)]
_FromTo2 = Annotated[float, Meta(ge=-2, le=2)]
_Positive = Annotated[int, Meta(ge=1)]


class _PlainOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool = False


class _PlainChat(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    # In the order in which clients usually send them: the next member is looked for behind the last one.
    messages: Annotated[tuple[Message, ...], Meta(min_length=1)]
    model: Annotated[str, Meta(min_length=1)]
    max_tokens: _Positive | None = None
    temperature: float = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    stream: bool = False
    stream_options: _PlainOptions | None = None
    top_k: Annotated[int, Meta(ge=0, le=_INT32_MAX)] = 0
    min_p: _FromTo1 = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] = 1.0
    presence_penalty: _FromTo2 = 0.0
    frequency_penalty: _FromTo2 = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    max_completion_tokens: _Positive | None = None
    ignore_eos: bool = False
    stop: str | None = None
    n: Literal[1] = 1
    user: str = ""


class _PlainCompletion(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    model: Annotated[str, Meta(min_length=1)]
    prompt: str
    max_tokens: _Positive | None = None
    temperature: float = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    ignore_eos: bool = False
    stream: bool = False
    stream_options: _PlainOptions | None = None
    presence_penalty: _FromTo2 = 0.0
    frequency_penalty: _FromTo2 = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: str | None = None
    n: Literal[1] = 1
    user: str = ""


_decode = msgspec.json.Decoder(_PlainChat).decode
_decode_completion = msgspec.json.Decoder(_PlainCompletion).decode


def decode_chat(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/chat/completions``. Raises InvalidRequest, BodyTooLarge."""
    if len(body) > limits.body_bytes:
        return decode_any_chat(body, limits)
    try:
        given = _decode(body)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        given = None
    if given is None:
        return decode_any_chat(body, limits)
    messages, longest, stop, options = given.messages, given.max_tokens, given.stop, given.stream_options
    low, high = limits.temperature
    if not low <= given.temperature <= high or len(messages) > limits.json_messages:
        return decode_any_chat(body, limits)
    for message in messages:
        if message.role not in _ROLES:
            return decode_any_chat(body, limits)
    if given.max_completion_tokens is not None:
        if longest is not None:
            return decode_any_chat(body, limits)
        longest = given.max_completion_tokens
    if longest is not None and longest > limits.max_tokens:
        return decode_any_chat(body, limits)
    if stop is not None and not (limits.stop and 1 <= len(stop) <= limits.stop_chars):
        return decode_any_chat(body, limits)
    if options is not None and not given.stream:
        return decode_any_chat(body, limits)
    return Request(
        _CHAT,
        given.model,
        messages,
        "",
        Sampling(
            given.temperature,
            given.top_p,
            given.top_k,
            given.min_p,
            given.repetition_penalty,
            given.presence_penalty,
            given.frequency_penalty,
            given.seed,
        ),
        longest,
        () if stop is None else (stop,),
        given.stream,
        options is not None and options.include_usage,
        given.ignore_eos,
    )


def decode_completion(body: bytes, limits: BodyLimits) -> Request:
    """Decode the body of ``POST /v1/completions``. Raises InvalidRequest, BodyTooLarge."""
    if len(body) > limits.body_bytes:
        return decode_any_completion(body, limits)
    try:
        given = _decode_completion(body)
    except (ValueError, RecursionError):
        given = None
    if given is None:
        return decode_any_completion(body, limits)
    longest, stop, options = given.max_tokens, given.stop, given.stream_options
    low, high = limits.temperature
    if not low <= given.temperature <= high or (longest is not None and longest > limits.max_tokens):
        return decode_any_completion(body, limits)
    if stop is not None and not (limits.stop and 1 <= len(stop) <= limits.stop_chars):
        return decode_any_completion(body, limits)
    if options is not None and not given.stream:
        return decode_any_completion(body, limits)
    return Request(
        _COMPLETIONS,
        given.model,
        (),
        given.prompt,
        Sampling(
            given.temperature,
            given.top_p,
            presence_penalty=given.presence_penalty,
            frequency_penalty=given.frequency_penalty,
            seed=given.seed,
        ),
        longest,
        () if stop is None else (stop,),
        given.stream,
        options is not None and options.include_usage,
        given.ignore_eos,
    )
