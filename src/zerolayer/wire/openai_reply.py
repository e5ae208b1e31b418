"""Complete JSON replies in OpenAI's shapes: answers, models, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from zerolayer.errors import HELP, RetryLater, ZerolayerError
from zerolayer.wire._native import joined
from zerolayer.wire.schema import Account, FinishReason, Route, ToolCall, Usage

FINGERPRINT = "fp_zerolayer"
"""``system_fingerprint`` unless the caller knows a better one, such as a digest of the model file."""

_ID_PREFIXES = {Route.CHAT: "chatcmpl-", Route.COMPLETIONS: "cmpl-"}


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of ``/v1/models``. ``created`` in Unix seconds; ``max_model_len`` in tokens, prompt and answer.

    ``zerolayer`` says how the model is served, for people: engine, kernels, threads, slots.
    """

    id: str
    created: int
    max_model_len: int
    owned_by: str = "zerolayer"
    zerolayer: Mapping[str, str | int] = {}


class _Model(msgspec.Struct):
    id: str
    object: str
    created: int
    owned_by: str
    max_model_len: int
    zerolayer: Mapping[str, str | int]


class _Models(msgspec.Struct):
    object: str
    data: list[_Model]


class _Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str
    help: str


class _PromptDetails(msgspec.Struct):
    cached_tokens: int


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _PromptDetails


class _CalledFunction(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _CalledFunction
    type: str = "function"


class _ChatMessage(msgspec.Struct):
    content: str | None
    role: str = "assistant"
    refusal: None = None
    tool_calls: list[_Call] | msgspec.UnsetType = msgspec.UNSET


class _ChatChoice(msgspec.Struct):
    message: _ChatMessage
    finish_reason: FinishReason
    logprobs: msgspec.Raw
    index: int


class _CompletionChoice(msgspec.Struct):
    text: str
    finish_reason: FinishReason
    logprobs: msgspec.Raw
    index: int


class _Reply(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[msgspec.Raw]
    usage: msgspec.Raw
    zerolayer: Account


def reply_id(route: Route, request_id: str) -> str:
    """The ``id`` member of every object of one reply."""
    return _ID_PREFIXES[route] + request_id


def complete_body(
    route: Route,
    request_id: str,
    created: int,
    model: str,
    *,
    choices: Sequence[msgspec.Raw],
    usage: Usage,
    account: Account,
    fingerprint: str = FINGERPRINT,
) -> bytes:
    """The whole reply to a request that did not ask for a stream; ``created`` in Unix seconds.

    ``choices`` are of ``choice_member``.
    """
    kind = "chat.completion" if route is Route.CHAT else "text_completion"
    counts = msgspec.Raw(usage_member(usage))
    reply = _Reply(reply_id(route, request_id), kind, created, model, fingerprint, choices, counts, account)
    return msgspec.json.encode(reply)


def choice_member(
    route: Route,
    text: str,
    reason: FinishReason,
    *,
    calls: Sequence[ToolCall] = (),
    logprobs: bytes = b"null",
    index: int = 0,
) -> msgspec.Raw:
    """One of a reply's answers; ``logprobs`` is the JSON value of a ``LogprobWriter``. A chat's may have ``calls``."""
    shown = msgspec.Raw(logprobs)
    choice: _ChatChoice | _CompletionChoice
    if route is Route.CHAT:
        message = _ChatMessage(text)
        if calls:
            message.content = text or None
            message.tool_calls = [_Call(call.id, _CalledFunction(call.name, call.arguments)) for call in calls]
        choice = _ChatChoice(message, reason, shown, index)
    else:
        choice = _CompletionChoice(text, reason, shown, index)
    return msgspec.Raw(msgspec.json.encode(choice))


def usage_member(usage: Usage) -> bytes:
    """The JSON value of ``usage``."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return msgspec.json.encode(_Usage(prompt, completion, prompt + completion, _PromptDetails(usage.cached_tokens)))


def error_reply(error: ZerolayerError, _request_id: bytes) -> tuple[int, bytes]:
    """Status and body."""
    if isinstance(error, RetryLater):  # under load most replies
        return error.status, joined(_later_parts(error.template, error.kind, error.code), error.retry_after_ms)
    return error.status, error_body(error)


def error_body(error: ZerolayerError) -> bytes:
    """``{"error": {...}}``; a refusal that passes also says ``retry_after_ms``."""
    if isinstance(error, RetryLater):
        return joined(_later_parts(error.template, error.kind, error.code), error.retry_after_ms)
    member = _Error(error.message, error.kind, error.param, error.code, error.help)
    return b'{"error":' + msgspec.json.encode(member) + b"}"


@lru_cache(64)
def _later_parts(template: str, kind: str, code: str) -> tuple[bytes, ...]:
    """The bytes before, between and after the places where the milliseconds stand: under load this is most replies."""
    member = _Error(template, kind, None, code, HELP + code)
    head, _, tail = (b'{"error":' + msgspec.json.encode(member) + b"}").rpartition(b"}}")
    return (*(head + b',"retry_after_ms":').split(b"{ms}"), b"}}" + tail)


def models_body(cards: Sequence[ModelCard]) -> bytes:
    """``GET /v1/models``."""
    return msgspec.json.encode(_Models("list", [_model(card) for card in cards]))


def model_body(card: ModelCard) -> bytes:
    """``GET /v1/models/{model}``."""
    return msgspec.json.encode(_model(card))


def _model(card: ModelCard) -> _Model:
    return _Model(card.id, "model", card.created, card.owned_by, card.max_model_len, card.zerolayer)
