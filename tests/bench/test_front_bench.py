"""The front door's bench: its server answers what its clients count."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import front_requests
from front_client import Http1Load, Http2Load, NoAnswer, SseLoad, blocks

import front


@pytest.fixture(scope="module")
def server() -> Iterator[front.Process]:
    with front.started("zerolayer", [str(front.HERE / "front_server.py")], None) as process:
        yield process


@pytest.mark.parametrize("requests", [1, 50], ids=["constant", "changing"])
def test_requests_over_http1_are_answered(server: front.Process, requests: int) -> None:
    load = Http1Load(server.port, 4, front_requests.http1_requests(requests))
    with contextlib.closing(load):
        load.run(60)
    assert server.cpu_ns() > 0


def test_a_real_request_is_refused_as_busy(server: front.Process) -> None:
    load = Http1Load(server.port, 1, [front_requests.post("/v1/chat/completions", front_requests.chat_body())])
    with contextlib.closing(load), pytest.raises(NoAnswer, match="429"):
        load.run(1)


def test_calls_of_grpc_are_answered_with_timeouts_that_change(server: front.Process) -> None:
    timeouts = [f"{number}S" for number in range(10, 60)]
    message = front_requests.framed(front_requests.schema_request(16))
    load = Http2Load(server.port, 2, 4, blocks(front_requests.CALL, "grpc-timeout", timeouts), message)
    with contextlib.closing(load):
        load.run(100)
    assert server.cpu_ns() > 0


@pytest.mark.parametrize("kind", sorted(front.FLOORS.values()))
def test_the_floor_answers_requests_and_streams(kind):
    with front.started(kind, [str(front.HERE / "front_floor.py"), kind], None) as floor:
        load = Http1Load(floor.port, 2, front_requests.http1_requests(1))
        load.run(10)
        load.close()
        stream = SseLoad(floor.port, 2, front_requests.post("/stream", front_requests.completion("m", 3)))
        stream.until(6)
        stream.close()
    assert stream.tokens == 6
