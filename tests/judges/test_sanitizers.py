"""GCC's sanitizers as judges of the native code: its tests and random calls, on one and two threads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.judge
SANITIZE = Path(__file__).parents[1] / "native" / "sanitize.sh"
SECONDS, SEED = "4", "1"
TIMEOUT_S = 1200


def test_no_call_makes_a_sanitizer_complain(tool: Callable[[str, str], str]) -> None:
    tool("g++", "apt-get install g++")
    run = subprocess.run(
        ["sh", str(SANITIZE), SECONDS, SEED], check=False, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert run.stdout.count("of them refused") == 2
