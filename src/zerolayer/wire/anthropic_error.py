"""Errors in the shape that Anthropic's SDKs read, and which requests want it."""

from __future__ import annotations

from typing import Final

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.wire.http1_head import Head

_PATH: Final = "/v1/messages"
_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class _Detail(msgspec.Struct):
    type: str
    message: str


class _Error(msgspec.Struct, tag_field="type", tag="error"):
    error: _Detail
    request_id: str


def speaks_anthropic(head: Head) -> bool:
    """Whether a client of Anthropic's API asks, as its path or its version header says."""
    return head.path.startswith(_PATH) or head.get(b"anthropic-version") is not None


def error_body(error: ZerolayerError, request_id: str) -> bytes:
    """``{"type":"error","error":{"type":...,"message":...},"request_id":...}``."""
    usual = "api_error" if error.status >= 500 else "invalid_request_error"
    return msgspec.json.encode(_Error(_Detail(_KINDS.get(error.status, usual), error.message), request_id))
