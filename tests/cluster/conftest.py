"""Fake servers that are closed when the test ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_servers import FakeApi, FakeNameServer


@pytest.fixture
def name_server() -> Iterator[FakeNameServer]:
    server = FakeNameServer()
    yield server
    server.close()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    server = FakeApi()
    yield server
    server.close()
