"""Steps take no memory: counted in a process of its own, over 1,000 steps with every kind of sampling."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reference.engines import TinyModels
from reference.tiny_model import LLAMA_64
from zerolayer.model import _native

COUNTER = Path(__file__).parents[1] / "native" / "count_allocations.c"
PROCESS = Path(__file__).with_name("stepping_process.py")


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The allocator that counts."""
    library = tmp_path_factory.mktemp("counter") / "count_allocations.so"
    subprocess.run(["g++", "-x", "c", "-O2", "-shared", "-fPIC", "-o", library, COUNTER], check=True, timeout=60)
    return library


def stepped(counter: Path, model: Path, threads: int, kind: str) -> dict[str, int]:
    """What 1,000 steps allocated."""
    kernels = _native.kernel_sets()[0]
    command = [sys.executable, str(PROCESS), str(model), kernels, str(threads), kind]
    environ = {**os.environ, "LD_PRELOAD": str(counter), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environ)
    return json.loads(run.stdout)


def test_a_native_step_asks_the_allocator_for_nothing(counter: Path, tiny_models: TinyModels) -> None:
    assert stepped(counter, tiny_models.path(LLAMA_64), 2, "engine")["allocations"] == 0


def test_the_step_clock_keeps_nothing_of_a_step(counter: Path, tiny_models: TinyModels) -> None:
    found = stepped(counter, tiny_models.path(LLAMA_64), 1, "clock")
    # Of 1,000 steps and 6,000 tokens. What is left are caches of the interpreter: its free list alone keeps 100 floats.
    assert found["blocks"] < 200
    assert found["allocations"] < 100
