"""An emulated arm64 processor as the judge of the portable kernels: they build, pass, and give x86-64's bits."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.judge
BUILD = Path(__file__).parents[1] / "native" / "build.sh"
INSTALL = "apt-get install g++-aarch64-linux-gnu qemu-user"
TIMEOUT_S = 900


def built(output: Path, *compiler: str) -> Path:
    subprocess.run(["sh", str(BUILD), str(output), *compiler], check=True, timeout=TIMEOUT_S)
    return output


def lines(command: list[str]) -> list[str]:
    """What the test program printed; every line is a check, the last one the fingerprint of a small model's logits."""
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


@pytest.fixture(scope="module")
def arm64(tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The test program's output on an emulated arm64 processor."""
    compiler, emulator = tool("aarch64-linux-gnu-g++", INSTALL), tool("qemu-aarch64", INSTALL)
    program = built(tmp_path_factory.mktemp("arm64") / "kernel_test", compiler, "-static")
    return lines([emulator, str(program)])


def test_the_kernels_pass_their_tests_on_arm64(arm64: list[str]) -> None:
    assert len(arm64) > 1
    assert not [line for line in arm64 if line.startswith("FAIL")]


def test_arm64_gives_the_same_bits_as_this_machine(
    arm64: list[str], tool: Callable[[str, str], str], tmp_path: Path
) -> None:
    native = lines([str(built(tmp_path / "kernel_test", tool("g++", "apt-get install g++")))])
    assert arm64[-1] == native[-1]
