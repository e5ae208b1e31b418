"""The @anthropic-ai/sdk package for Node as the judge: messages, streams as iterators, errors as its own classes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from judges.busy_server import Busy
from judges.client_environments import said_by_node

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def said(server: str) -> dict[str, Any]:
    """What the client saw."""
    return said_by_node("anthropic_client.mjs", server)


def test_a_message_and_its_stream_say_the_same(said: dict[str, Any]) -> None:
    whole, streamed = said["whole"], said["streamed"]
    assert whole["content"] == streamed["content"]
    assert (whole["stop_reason"], whole["usage"]) == (streamed["stop_reason"], streamed["usage"])
    assert said["text"] == "".join([block["text"] for block in whole["content"]])


def test_events_come_in_anthropic_s_order(said: dict[str, Any]) -> None:
    assert said["raw"][0] == "message_start"
    assert said["raw"][-2:] == ["message_delta", "message_stop"]


def test_a_forced_call_is_a_block_with_its_input(said: dict[str, Any]) -> None:
    block = said["call"]["content"][-1]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "weather", {"city": "Ulm"})
    assert said["call"]["stop_reason"] == "tool_use"


def test_an_answer_in_a_format_is_json_that_its_schema_allows(said: dict[str, Any]) -> None:
    assert json.loads(said["formed"]["content"][0]["text"])["sky"] in {"blue", "grey"}


def test_a_count_is_what_the_call_is_billed(said: dict[str, Any]) -> None:
    assert said["count"]["input_tokens"] == said["call"]["usage"]["input_tokens"]


def test_models_are_listed_in_pages(said: dict[str, Any]) -> None:
    assert said["listed"][0] == said["one"]
    assert said["one"]["type"] == "model"


def test_errors_are_the_client_s_own_classes(said: dict[str, Any]) -> None:
    assert said["errors"]["model"][:3] == ["NotFoundError", 404, "not_found_error"]
    assert said["errors"]["range"][:3] == ["BadRequestError", 400, "invalid_request_error"]
    assert all(error[3] for error in said["errors"].values())


def test_a_stream_can_be_aborted(busy: Busy) -> None:
    said = said_by_node("anthropic_client.mjs", busy.url, "abort")
    assert said["seen"] >= 4
    assert said["aborted"]


def test_the_beta_path_answers(said: dict[str, Any]) -> None:
    assert said["beta"]["content"] == said["whole"]["content"]
