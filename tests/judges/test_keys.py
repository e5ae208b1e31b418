"""The page docs/keys.md as a stranger follows it: commands, curl, a revocation, and a server that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reference.server import addressed, own_host, own_port, ready_soon, running_server
from reference.tiny_model import LLAMA_64, write_tiny_model

pytestmark = pytest.mark.judge
BODY = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "model": "tiny"})


def zerolayer(*arguments: str) -> str:
    command = [sys.executable, "-m", "zerolayer", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def curl(tool: Callable[[str, str], str]) -> Callable[..., int]:
    """The status that curl is told."""
    path = tool("curl", "apt-get install curl")

    def run(url: str, *arguments: str) -> int:
        command = [path, "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "30", url, *arguments]
        return int(subprocess.run(command, capture_output=True, text=True).stdout or 0)

    return run


@pytest.fixture
def serve(tmp_path: Path) -> list[str]:
    """Arguments of a server with keys, on a tiny random model."""
    zerolayer("keys", "new", str(tmp_path / "keys"))
    (tmp_path / "contract.toml").write_text(f'[tenants]\nstate = "{tmp_path}/budgets.log"\n')
    model = write_tiny_model(tmp_path / "tiny.gguf", LLAMA_64)
    key_set = str(tmp_path / "keys" / "keyset.json")
    shape = ["--slots", "2", "--slot-tokens", "256", "--threads", "1"]
    return ["--model", str(model), "--contract", str(tmp_path / "contract.toml"), "--key-set", key_set, *shape]


def issue(tmp_path: Path, *arguments: str) -> str:
    return zerolayer("keys", "issue", "--tenant", "me", "--folder", str(tmp_path / "keys"), *arguments)


def test_new_issue_serve_curl_revoke(curl, serve, tmp_path):
    key = issue(tmp_path)
    with running_server(*serve) as url:
        models = f"{url}/v1/models"
        assert curl(models) == 401
        assert curl(models, "-H", f"authorization: Bearer {key}") == 200
        assert curl(models, "-H", f"x-api-key: {key}") == 200
        zerolayer("keys", "revoke", key, "--folder", str(tmp_path / "keys"))
        deadline = time.monotonic() + 30
        while curl(models, "-H", f"x-api-key: {key}") != 401:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_budget_outlives_a_server_that_is_killed(curl, serve, tmp_path):
    key = issue(tmp_path, "--requests-per-minute", "2")
    host, port = own_host(), own_port()
    command = [sys.executable, "-m", "zerolayer", "serve", *addressed(host, port), *serve]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ask = ["-H", f"x-api-key: {key}", "--json", BODY]
    try:
        assert ready_soon(server, port, host)
        chat = f"http://{host}:{port}/v1/chat/completions"
        assert [curl(chat, *ask) for _ in range(3)] == [200, 200, 429]
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
    with running_server(*serve) as url:
        assert curl(f"{url}/v1/chat/completions", *ask) == 429
