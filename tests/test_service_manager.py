"""What a service manager is told: ready once the listeners accept, alive while steps end, stopping when it drains."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zerolayer.serve.service_manager import ServiceManager

SCRIPT = Path(__file__).with_name("front") / "echo_process.py"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def told(manager: socket.socket) -> list[str]:
    manager.setblocking(False)
    out = []
    while True:
        try:
            out.append(manager.recv(100).decode())
        except BlockingIOError:
            return out


def run(environ: dict[str, str], healthy: Callable[[], bool], seconds: float = 0.1) -> None:
    async def live() -> None:
        service = ServiceManager(environ, healthy)
        service.ready()
        await asyncio.sleep(seconds)
        service.stopping()
        service.close()

    asyncio.run(live())


def test_a_process_tells_when_it_is_ready_that_it_lives_and_that_it_stops(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "60000"}
    child = subprocess.Popen(
        [sys.executable, str(SCRIPT), "0", "1000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        child.send_signal(signal.SIGTERM)
        while (message := manager.recv(100)) == b"WATCHDOG=1":
            pass
        assert message == b"STOPPING=1"
    finally:
        child.kill()
        child.communicate()


def test_a_service_whose_steps_do_not_end_gives_no_sign_of_life(manager: socket.socket) -> None:
    run({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "15000"}, lambda: False)
    assert told(manager) == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "words"}, {"WATCHDOG_USEC": "15000", "WATCHDOG_PID": "1"}])
def test_signs_of_life_are_sent_only_where_they_are_asked_for(manager: socket.socket, more: dict[str, str]) -> None:
    run({"NOTIFY_SOCKET": manager.getsockname(), **more}, lambda: True)
    assert told(manager) == ["READY=1", "STOPPING=1"]


def test_a_name_of_the_abstract_namespace_is_one() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"zerolayer-test-{os.getpid()}"
        listening.bind("\0" + name)
        run({"NOTIFY_SOCKET": "@" + name}, lambda: True, 0)
        assert told(listening) == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "/nowhere/at/all"])
def test_nobody_to_tell_is_no_error(address: str) -> None:
    run({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "15000"}, lambda: True, 0.02)
    assert ServiceManager({"NOTIFY_SOCKET": address}, lambda: True)._timer is None
