"""Fixtures of the judges: other people's programs, and a server for them to judge."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from judges.busy_server import Busy
from reference.server import own_host, own_port, ready_soon, running_server
from reference.tiny_model import LLAMA_64, write_tiny_model

ALONE = ("--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


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
def alone(tool: Callable[[str, str], str]) -> list[str]:
    """What a command begins with that is to have a network and processes of its own: what it starts ends with it."""
    command = [tool("unshare", "apt-get install util-linux"), *ALONE]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system allows no network namespace (sysctl kernel.unprivileged_userns_clone=1)")
    return command


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server on a tiny random model."""
    model = write_tiny_model(tmp_path_factory.mktemp("judge") / "tiny.gguf", LLAMA_64)
    with running_server("--model", str(model), "--slots", "4", "--slot-tokens", "1024", "--threads", "1") as url:
        yield url


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    """A server that is easily full."""
    model = write_tiny_model(tmp_path_factory.mktemp("busy") / "tiny.gguf", LLAMA_64)
    mock = ("--engine", "mock:step_us=5000", "--slots", "2", "--slot-tokens", "512")
    with running_server("--model", str(model), *mock) as url:
        yield Busy(url)


@pytest.fixture(scope="session")
def echo() -> Iterator[str]:
    """The URL of a server whose model says its prompt again: a call of a tool that is asked for comes."""
    host, port = own_host(), own_port()
    program = Path(__file__).parents[1] / "front" / "echo_process.py"
    command = [sys.executable, str(program), str(port), "200", "off", host]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert ready_soon(process, port, host)
        yield f"http://{host}:{port}"
    finally:
        process.terminate()
        process.wait(10)
