"""The front door's bench: its server answers what its clients count."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from front_client import Http1Load, Http2Load, NoAnswer, blocks

import front


@pytest.fixture(scope="module")
def server() -> Iterator[front.Process]:
    with front.started("zerolayer", [str(front.HERE / "front_server.py")], None) as process:
        yield process


@pytest.mark.parametrize("requests", [1, 50], ids=["constant", "changing"])
def test_requests_over_http1_are_answered(server: front.Process, requests: int) -> None:
    load = Http1Load(server.port, 4, front.http1_requests(requests))
    with contextlib.closing(load):
        load.run(60)
    assert server.cpu_ns() > 0


def test_a_real_request_is_refused_as_busy(server: front.Process) -> None:
    load = Http1Load(server.port, 1, [front.post("/v1/chat/completions", front.chat_body())])
    with contextlib.closing(load), pytest.raises(NoAnswer, match="429"):
        load.run(1)


def test_calls_of_grpc_are_answered_with_timeouts_that_change(server: front.Process) -> None:
    timeouts = [f"{number}S" for number in range(10, 60)]
    message = front.framed(front.schema_request(16))
    load = Http2Load(server.port, 2, 4, blocks(front.CALL, "grpc-timeout", timeouts), message)
    with contextlib.closing(load):
        load.run(100)
    assert server.cpu_ns() > 0
