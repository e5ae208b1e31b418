"""Complete JSON replies in Anthropic's shapes: messages, counts, models, errors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from zerolayer.errors import RetryLater, Unavailable, ZerolayerError
from zerolayer.wire.openai_reply import ModelCard
from zerolayer.wire.schema import Account, Usage

OVERLOADED: Final = 529
"""Anthropic's own status for a service that cannot take work now; its SDKs retry it."""

_KINDS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """Text of an answer."""

    text: str


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a tool; ``input`` is a JSON object."""

    id: str
    name: str
    input: msgspec.Raw


class _Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    service_tier: str = "standard"


class _Message(msgspec.Struct, tag_field="type", tag="message"):
    id: str
    model: str
    content: Sequence[TextBlock | ToolUseBlock]
    stop_reason: str
    stop_sequence: str | None
    usage: _Usage
    zerolayer: Account
    role: str = "assistant"


class _Count(msgspec.Struct):
    input_tokens: int


class _Details(msgspec.Struct):
    error_code: str
    help: str


class _Error(msgspec.Struct, omit_defaults=True):
    type: str
    message: str
    details: _Details
    retry_after_ms: int | None = None


class _ErrorReply(msgspec.Struct, tag_field="type", tag="error"):
    error: _Error
    request_id: str


class _Model(msgspec.Struct, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: str
    max_input_tokens: int
    max_tokens: int
    lifecycle: str = "active"


class _Models(msgspec.Struct):
    data: Sequence[_Model]
    has_more: bool
    first_id: str | None
    last_id: str | None


_encode = msgspec.json.Encoder().encode


def message_id(request_id: str) -> str:
    """The ``id`` of the message that answers a request."""
    return "msg_" + request_id


def message_body(
    request_id: str,
    model: str,
    content: Sequence[TextBlock | ToolUseBlock],
    *,
    stop_reason: str,
    stop_sequence: str | None,
    usage: Usage,
    account: Account,
) -> bytes:
    """The whole answer of a request that did not ask for a stream."""
    counts = _Usage(usage.prompt_tokens, usage.completion_tokens)
    return _encode(_Message(message_id(request_id), model, content, stop_reason, stop_sequence, counts, account))


def usage_member(usage: Usage) -> bytes:
    """The JSON value of ``usage``: cumulative, and all of the prompt as ``input_tokens``, for none of it is cheaper."""
    return _encode(_Usage(usage.prompt_tokens, usage.completion_tokens))


def count_body(input_tokens: int) -> bytes:
    """``POST /v1/messages/count_tokens``."""
    return _encode(_Count(input_tokens))


def error_status(error: ZerolayerError) -> int:
    """The HTTP status: our own, but for a service that takes no work now."""
    return OVERLOADED if isinstance(error, Unavailable) else error.status


def error_body(error: ZerolayerError, request_id: str) -> bytes:
    """``{"type": "error", ...}``; ``details.error_code`` is our stable code, as the SDK's ``error_code`` shows it."""
    status = error_status(error)
    kind = _KINDS.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    retry_after_ms = error.retry_after_ms if isinstance(error, RetryLater) else None
    return _encode(
        _ErrorReply(_Error(kind, error.message, _Details(error.code, error.help), retry_after_ms), request_id)
    )


def models_page(cards: Sequence[ModelCard], *, max_tokens: int, has_more: bool) -> bytes:
    """``GET /v1/models``: one page. ``max_tokens`` is the longest answer that may be asked for."""
    data = [_model(card, max_tokens) for card in cards]
    ends = (data[0].id, data[-1].id) if data else (None, None)
    return _encode(_Models(data, has_more, *ends))


def model_info(card: ModelCard, *, max_tokens: int) -> bytes:
    """``GET /v1/models/{model}``."""
    return _encode(_model(card, max_tokens))


def _model(card: ModelCard, max_tokens: int) -> _Model:
    created = datetime.fromtimestamp(card.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _Model(card.id, card.id, created, card.max_model_len, max_tokens)
