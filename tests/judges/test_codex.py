"""Codex as the judge: it speaks the Responses API only, streams, and offers tools of many kinds."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reference.server import running_server

pytestmark = pytest.mark.judge
CONTRACT = """
[model]
aliases = ["*"]
[limits]
max_tokens = 24
default_max_tokens = 24
"""
PROVIDER = """
model = "any"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "{url}/v1"
wire_api = "responses"
"""


def test_a_turn_of_codex_is_answered(tool: Callable[[str, str], str], tmp_path: Path) -> None:
    """Its instructions are longer than a small model can read: the mock engine says arbitrary words after them."""
    codex = tool("codex", "npm install --global @openai/codex")
    (tmp_path / "contract.toml").write_text(CONTRACT)
    engine = ("--engine", "mock:step_us=500", "--slots", "2", "--slot-tokens", "65536")
    with running_server("--contract", str(tmp_path / "contract.toml"), *engine) as url:
        (tmp_path / "config.toml").write_text(PROVIDER.format(url=url))
        run = subprocess.run(
            [codex, "exec", "--skip-git-repo-check", "--json", "hello"], stdin=subprocess.DEVNULL, cwd=tmp_path,
            env=os.environ | {"CODEX_HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    events = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    said = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] != "" for item in said if item["type"] == "agent_message"] == [True]
    failures = [event["message"] for event in events if event["type"] == "error"]
    assert failures == ["Incomplete response returned, reason: max_output_tokens"]  # and no retry for a broken stream
