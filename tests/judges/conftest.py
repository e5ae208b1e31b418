"""Fixtures of the judges: other people's programs, and a server for them to judge."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from judges.busy_server import Busy
from reference.server import free_port, ready_soon, running_server
from reference.tiny_model import LLAMA_64, write_tiny_model


@pytest.fixture(scope="session")
def tool() -> Callable[[str, str], str]:
    """The path of a program; without it the test is skipped, and the reason names the command that installs it."""

    beside = str(Path(sys.executable).parent)  # what pip installed is not always in PATH

    def find(name: str, install: str) -> str:
        path = shutil.which(name) or shutil.which(name, path=beside)
        if path is None:
            pytest.skip(f"{name} is missing; install it with: {install}")
        return path

    return find


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server on a tiny random model."""
    model = write_tiny_model(tmp_path_factory.mktemp("judge") / "tiny.gguf", LLAMA_64)
    with running_server("--model", str(model), "--slots", "4", "--slot-tokens", "1024", "--threads", "1") as url:
        yield url


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    """A server that is easily full."""
    model, admin = write_tiny_model(tmp_path_factory.mktemp("busy") / "tiny.gguf", LLAMA_64), free_port()
    mock = ("--engine", "mock:step_us=5000", "--slots", "2", "--slot-tokens", "512")
    with running_server("--model", str(model), "--admin", f"127.0.0.1:{admin}", *mock) as url:
        yield Busy(url, admin)


@pytest.fixture(scope="session")
def echo() -> Iterator[str]:
    """The URL of a server whose model says its prompt again: a call of a tool that is asked for comes."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).parents[1] / "front" / "echo_process.py"), str(port), "200"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert ready_soon(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
