"""Small bodies of Anthropic's and how they are refused, for the tests of this folder."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zerolayer.errors import InvalidRequest
from zerolayer.wire.anthropic import decode_count, decode_messages
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.schema import Request

LIMITS = BodyLimits()
HELLO = [{"role": "user", "content": "hello"}]
WEATHER = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object"}}
SECRET = "sk-secret"


def messages(limits: BodyLimits = LIMITS, **members: Any) -> Request:
    return decode_messages(body(**members), limits)


def count(limits: BodyLimits = LIMITS, **members: Any) -> Request:
    return decode_count(body(**members), limits)


def body(**members: Any) -> bytes:
    whole = {"model": "m", "max_tokens": 16, "messages": HELLO} | members
    return json.dumps({name: value for name, value in whole.items() if value != "absent"}).encode()


def refusal(limits: BodyLimits = LIMITS, **members: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        messages(limits, **members)
    assert SECRET not in caught.value.message
    return caught.value


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(said: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **members}
