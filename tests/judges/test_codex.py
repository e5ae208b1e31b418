"""Codex as the judge: it speaks the Responses API only, streams, and offers tools of many kinds."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reference.server import running_server

pytestmark = pytest.mark.judge
PROVIDER = """
model = "any"
model_provider = "here"
web_search = "disabled"
{more}
[model_providers.here]
name = "here"
base_url = "{url}/v1"
wire_api = "responses"
[agents]
enabled = false
[features]
shell_tool = {shell}
"""
BRIEF = """
[model]
aliases = ["*"]
[limits]
max_tokens = 24
default_max_tokens = 24
"""
# Codex names neither a temperature nor a seed: the likeliest words come.
LIKELIEST = """
[model]
aliases = ["*"]
[limits]
temperature = [0.0, 0.0]
outside = "clamp"
[deadline]
default_ms = 600000
first_token_ms = 300000
per_token_ms = 20000
"""
CUT = "Incomplete response returned, reason: max_output_tokens"


def turn(codex: str, folder: Path, config: str, text: str) -> list[dict[str, Any]]:
    """What Codex tells of one turn."""
    (folder / "config.toml").write_text(config)
    run = subprocess.run(
        [codex, "exec", "--skip-git-repo-check", "--json", text], stdin=subprocess.DEVNULL, cwd=folder,
        env=os.environ | {"CODEX_HOME": str(folder)}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def said(events: list[dict[str, Any]]) -> list[str]:
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"]


def failures(events: list[dict[str, Any]]) -> set[str]:
    return {event["message"] for event in events if event["type"] == "error"}


@pytest.fixture
def codex(tool: Callable[[str, str], str]) -> str:
    return tool("codex", "npm install --global @openai/codex")


def test_a_turn_with_all_of_its_tools_is_answered(codex: str, tmp_path: Path) -> None:
    """Its instructions are longer than a small model can read: the mock engine says arbitrary words after them."""
    (tmp_path / "contract.toml").write_text(BRIEF)
    engine = ("--engine", "mock:step_us=500", "--slots", "2", "--slot-tokens", "65536")
    with running_server("--contract", str(tmp_path / "contract.toml"), *engine) as url:
        events = turn(codex, tmp_path, PROVIDER.format(url=url, more="", shell="true"), "hello")
    assert [text != "" for text in said(events)] == [True]
    assert failures(events) == {CUT}  # and no retry for a broken stream


def test_a_turn_is_answered_by_the_bundled_model(codex: str, tmp_path: Path) -> None:
    """With shorter instructions and without the shell, a turn fits into a slot of the default size."""
    (tmp_path / "contract.toml").write_text(LIKELIEST)
    (tmp_path / "instructions.md").write_text("Answer in one short sentence.")
    more = f'model_instructions_file = "{tmp_path / "instructions.md"}"'
    with running_server("--contract", str(tmp_path / "contract.toml"), "--slots", "2") as url:
        events = turn(codex, tmp_path, PROVIDER.format(url=url, more=more, shell="false"), "Say hello.")
    assert [text.strip() != "" for text in said(events)] == [True]
    assert failures(events) <= {CUT}  # a small model may not find an end
