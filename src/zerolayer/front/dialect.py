"""Which family of SDKs asks, told from the head alone, so that even the first refusal has the shape that it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.wire import anthropic_reply, openai_reply
from zerolayer.wire.http1 import Head

_MESSAGES: Final = "/v1/messages"
_VERSION: Final = b"anthropic-version"


class Dialect(msgspec.Struct, frozen=True):
    """``error`` gives status and JSON body of a refusal, ``id_header`` repeats the request's id; b"" for none."""

    error: Callable[[ZerolayerError, bytes], tuple[int, bytes]]
    id_header: bytes = b""


def _anthropic_error(error: ZerolayerError, request_id: bytes) -> tuple[int, bytes]:
    return anthropic_reply.error_status(error), anthropic_reply.error_body(error, request_id.decode("ascii"))


OPENAI: Final = Dialect(openai_reply.error_reply)
ANTHROPIC: Final = Dialect(_anthropic_error, b"request-id")


def dialect_of(head: Head) -> Dialect:
    """Anthropic's for its own paths, and for whoever names its version when asking for a list (``/v1/models``)."""
    if head.path[: len(_MESSAGES)] == _MESSAGES or (head.method == "GET" and head.get(_VERSION) is not None):
        return ANTHROPIC
    return OPENAI
