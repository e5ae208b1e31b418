"""Fixtures of the judges: other people's programs, and a server for them to judge."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reference.server import running_server
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
