"""A session as Claude Code has it, request by request: system blocks, tools, betas, results, compaction."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from reference.server import running_server
from reference.tiny_model import LLAMA_64, write_tiny_model

pytestmark = pytest.mark.judge
SLOT_TOKENS = 4096
CONTRACT = """
[model]
aliases = ["*"]
[limits]
max_tokens = 48
default_max_tokens = 48
"""
HEADERS = {
    "content-type": "application/json",
    "authorization": "Bearer none",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "user-agent": "claude-cli/2.1.154 (external, cli)",
    "x-app": "cli",
    "x-stainless-retry-count": "0",
    "x-stainless-timeout": "600",
    "x-claude-code-session-id": "0b0e7a3c-8d0d-4c57-9a35-0f6b8c2f4d11",
}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
NAMES = "Bash Read Edit Glob mcp__tracker__" + "create_" * 10


def tool(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"{name} does its work. " * 2,
        "input_schema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "What to do"},
                "timeout": {"type": "number", "maximum": 600000},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    }


def body(turns: list[dict[str, Any]], number: int, **members: Any) -> dict[str, Any]:
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {
                "type": "text",
                "text": f"x-anthropic-billing-header: cc_version=2.1.154; cc_entrypoint=cli; cch={number:05x};",
            },
            {"type": "text", "text": "You help with code.", **EPHEMERAL},
            {"type": "text", "text": "Keep to the rules of the house. " * 20, **EPHEMERAL},
        ],
        "messages": turns,
        "tools": [tool(name) for name in NAMES.split()],
        "metadata": {"user_id": "user_1_account__session_2"},
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        **members,
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("claude-code")
    model, contract = write_tiny_model(folder / "tiny.gguf", LLAMA_64), folder / "contract.toml"
    contract.write_text(CONTRACT)
    shape = ("--slots", "2", "--slot-tokens", str(SLOT_TOKENS), "--threads", "1")
    with running_server("--model", str(model), "--contract", str(contract), *shape) as url:
        yield url


def post(url: str, path: str, sent: dict[str, Any]) -> tuple[int, Any]:
    """Status and JSON body, or the events of a stream."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("POST", path, json.dumps(sent), HEADERS)
    reply = connection.getresponse()
    data = reply.read().decode()
    connection.close()
    if reply.status == 200 and sent.get("stream"):
        return 200, [json.loads(block.split("\ndata: ")[1]) for block in data.split("\n\n")[:-1]]
    return reply.status, json.loads(data)


FIRST = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>"},
            {"type": "text", "text": "List the files.", **EPHEMERAL},
        ],
    }
]
SECOND = [
    *FIRST,
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I need the shell.", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py\nb.py", "is_error": False, **EPHEMERAL},
            {"type": "text", "text": "<system-reminder>\nThe list of tasks is empty.\n</system-reminder>"},
        ],
    },
    {"role": "system", "content": "The user has changed the mode."},
]


@pytest.mark.parametrize("turns", [FIRST, SECOND], ids=["first", "with a result and a system item"])
def test_a_turn_is_streamed_and_its_input_is_what_was_counted(url: str, turns: list[dict[str, Any]]) -> None:
    sent = body(turns, 1)
    status, events = post(url, "/v1/messages?beta=true", sent)
    counting = {name: sent[name] for name in ("model", "messages", "system", "tools", "thinking")}
    counted = post(url, "/v1/messages/count_tokens?beta=true", {**counting, "max_tokens": 32000})[1]
    assert status == 200, events
    usage = events[0]["message"]["usage"]
    assert usage["input_tokens"] == counted["input_tokens"] > 1000
    assert events[-1]["type"] == "message_stop"
    assert events[-2]["usage"]["output_tokens"] >= 1


def test_the_attribution_of_each_request_does_not_change_the_prompt(url: str) -> None:
    brief = {"stream": False, "max_tokens": 1, "thinking": {"type": "disabled"}}
    answers = [post(url, "/v1/messages?beta=true", body(FIRST, number, **brief))[1] for number in (1, 2)]
    assert answers[0]["usage"]["input_tokens"] == answers[1]["usage"]["input_tokens"]


def test_a_conversation_over_the_slot_is_told_in_the_words_that_start_a_compaction(url: str) -> None:
    turns = [{"role": "user", "content": "word " * 3 * SLOT_TOKENS}]
    status, error = post(url, "/v1/messages?beta=true", body(turns, 1))
    assert (status, error["error"]["type"]) == (400, "invalid_request_error")
    assert "prompt is too long" in error["error"]["message"]
