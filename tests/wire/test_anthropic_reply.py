"""Anthropic's complete replies: messages, models, and errors of every status."""

from __future__ import annotations

import json

import msgspec
import pytest

from zerolayer import errors
from zerolayer.wire.anthropic_reply import (
    TextBlock,
    ToolUseBlock,
    count_body,
    error_body,
    error_status,
    message_body,
    model_info,
    models_page,
)
from zerolayer.wire.openai_reply import ModelCard
from zerolayer.wire.schema import Account, Usage

CARD = ModelCard("smollm2", 1_700_000_000, 2048)


def test_a_message() -> None:
    content = [TextBlock("I look."), ToolUseBlock("t1", "weather", msgspec.Raw(b'{"city":"Ulm"}'))]
    data = message_body(
        "r1", "m", content, stop_reason="tool_use", stop_sequence=None, usage=Usage(7, 3, 5),
        account=Account({}, "plain", 16, 60_000),
    )  # fmt: skip
    message = json.loads(data)
    del message["zerolayer"]
    assert message == {
        "type": "message",
        "id": "msg_r1",
        "model": "m",
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 7,
            "output_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "service_tier": "standard",
        },
    }


def test_a_count_has_one_member() -> None:
    assert json.loads(count_body(9)) == {"input_tokens": 9}


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.InvalidRequest("x"), 400, "invalid_request_error"),
        (errors.ContextTooLong("x"), 400, "invalid_request_error"),
        (errors.Unauthenticated("x"), 401, "authentication_error"),
        (errors.OriginRefused("x"), 403, "permission_error"),
        (errors.ModelNotFound("x"), 404, "not_found_error"),
        (errors.MethodNotAllowed("x"), 405, "invalid_request_error"),
        (errors.RequestTimeout("x"), 408, "timeout_error"),
        (errors.StaleInput("x"), 409, "invalid_request_error"),
        (errors.BodyTooLarge("x"), 413, "request_too_large"),
        (errors.UnsupportedMediaType("x"), 415, "invalid_request_error"),
        (errors.Infeasible("x"), 422, "invalid_request_error"),
        (errors.SlotsBusy("x", retry_after_ms=5), 429, "rate_limit_error"),
        (errors.BeyondHorizon("x"), 429, "rate_limit_error"),
        (errors.EngineFailed("x"), 500, "api_error"),
        (errors.DeadlineMissed("x"), 504, "timeout_error"),
        (errors.Unavailable("x"), 529, "overloaded_error"),
    ],
)
def test_an_error_has_anthropic_s_status_and_type(error: errors.ZerolayerError, status: int, kind: str) -> None:
    body = json.loads(error_body(error, "r1"))
    assert error_status(error) == status
    assert (body["type"], body["error"]["type"], body["request_id"]) == ("error", kind, "r1")
    assert body["error"]["details"] == {"error_code": error.code, "help": error.help}


def test_a_refusal_for_lack_of_slots_tells_when_to_come_back() -> None:
    assert json.loads(error_body(errors.SlotsBusy("x", retry_after_ms=5), "r1"))["error"]["retry_after_ms"] == 5


def test_a_model_has_what_the_sdk_requires() -> None:
    assert json.loads(model_info(CARD, max_tokens=512)) == {
        "type": "model",
        "id": "smollm2",
        "display_name": "smollm2",
        "created_at": "2023-11-14T22:13:20Z",
        "max_input_tokens": 2048,
        "max_tokens": 512,
        "lifecycle": "active",
    }


def test_a_page_of_models_names_its_ends() -> None:
    page = json.loads(models_page([CARD], max_tokens=512, has_more=True))
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("smollm2", "smollm2", True)


def test_an_empty_page_has_no_ends() -> None:
    page = json.loads(models_page([], max_tokens=512, has_more=False))
    assert (page["data"], page["first_id"], page["last_id"]) == ([], None, None)
