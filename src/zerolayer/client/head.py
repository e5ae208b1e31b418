"""What the heads of replies and OpenAI's error objects say to a client; malformed values count as not said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from zerolayer.client.attempt import Head
from zerolayer.client.errors import BadReply, Refused
from zerolayer.client.http1 import CHECK
from zerolayer.wire.load import Load

TICKET_CHARACTERS: Final = 64
_SECONDS: Final = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,9}))?", re.ASCII)
_RETRY: Final = {"true": True, "false": False}


def read_head(status: int, headers: Mapping[str, str]) -> Head:
    """``headers`` have lower case names."""
    ticket = headers.get("x-zl-ticket", "")
    return Head(
        status,
        load=Load.parse(headers.get("x-zl-load", "")),
        wait_ms=_wait_ms(headers),
        retry=_RETRY.get(headers.get("x-should-retry", "")),
        ticket=ticket if ticket and len(ticket) <= TICKET_CHARACTERS and ticket.isascii() else None,
        server_wall_ns=_unix_ns(headers.get("x-server-time", "")),
    )


def json_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises ``BadReply``."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadReply(f"The reply is no JSON object. {CHECK}")
    return value


def refused(head: Head, body: bytes) -> Refused:
    """The error of a whole reply; a proxy's page, for example, is told by its status."""
    try:
        reply = json_object(body)
    except BadReply:
        reply = {}
    return refusal(reply, head.status, None if head.retry is False else head.wait_ms)


def refusal(reply: Mapping[str, Any], status_code: int, wait_ms: int | None) -> Refused:
    """The error that OpenAI's error object describes; of a reply of another shape, only the status is told."""
    error = reply.get("error")
    details: dict[str, Any] = error if isinstance(error, dict) else {}
    message = details.get("message")
    text = message if isinstance(message, str) and message else f"The server answered with status {status_code}."
    code = details.get("code")
    return Refused(
        text, status_code=status_code, error_code=code if isinstance(code, str) else None, retry_after_ms=wait_ms
    )


def _wait_ms(headers: Mapping[str, str]) -> int | None:
    """``retry-after-ms`` (milliseconds), else ``retry-after`` in seconds (RFC 9110 section 10.2.3), else None."""
    for name, factor in (("retry-after-ms", 1), ("retry-after", 1000)):
        text = headers.get(name, "")
        if text.isascii() and text.isdigit() and len(text) <= 12:
            return max(1, int(text) * factor)
    return None


def _unix_ns(text: str) -> int | None:
    """Unix seconds with a fraction, as nanoseconds."""
    parts = _SECONDS.fullmatch(text)
    return int(parts[1]) * 1_000_000_000 + int((parts[2] or "").ljust(9, "0")) if parts else None
