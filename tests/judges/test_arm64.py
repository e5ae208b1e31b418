"""An emulated arm64 processor as the judge of the portable kernels: they build, pass, and give x86-64's bits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.judge
ROOT = Path(__file__).parents[2]
BUILD = ROOT / "tests" / "native" / "build.sh"
INSTALL = "apt-get install g++-aarch64-linux-gnu qemu-user"
TIMEOUT_S = 900


def built(output: Path, *compiler: str, objects: Path | None = None) -> Path:
    known = {} if objects is None else {"ENGINE_OBJECTS": str(objects)}
    command = ["sh", str(BUILD), str(output), *compiler]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, env=os.environ | known)
    return output


def installed() -> Path | None:
    """Objects of the engine that is installed here, if they were left and are newer than the sources."""
    folder = next(ROOT.glob(".build/*/CMakeFiles/_native.dir"), None)
    objects = [] if folder is None else list(folder.rglob("*.cpp.o"))
    sources = [*(ROOT / "src/zerolayer/native").iterdir(), ROOT / "CMakeLists.txt"]
    newest = max(source.stat().st_mtime for source in sources)
    return folder if objects and min(each.stat().st_mtime for each in objects) > newest else None


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
    compiler = tool("g++", "apt-get install g++")
    native = lines([str(built(tmp_path / "kernel_test", compiler, objects=installed()))])
    assert arm64[-1] == native[-1]
