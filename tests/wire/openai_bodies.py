"""Small OpenAI bodies and how they are refused, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai import decode_chat, decode_completion
from zerolayer.wire.schema import Request

LIMITS = BodyLimits()
HELLO = [{"role": "user", "content": "hello"}]
SECRET = "sk-secret"


def chat(limits: BodyLimits = LIMITS, **members: Any) -> Request:
    return decode_chat(json.dumps({"model": "m", "messages": HELLO} | members).encode(), limits)


def completion(limits: BodyLimits = LIMITS, **members: Any) -> Request:
    return decode_completion(json.dumps({"model": "m", "prompt": "hello"} | members).encode(), limits)


BOTH = pytest.mark.parametrize("decode", [chat, completion])


def refusal(decode: Callable[..., Request], limits: BodyLimits = LIMITS, **members: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode(limits, **members)
    assert SECRET not in caught.value.message
    return caught.value


def refused_param(decode: Callable[..., Request], **members: Any) -> str | None:
    error = refusal(decode, **members)
    assert error.param is not None
    assert f"'{error.param}'" in error.message or error.param in error.message
    return error.param
