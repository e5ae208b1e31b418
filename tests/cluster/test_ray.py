"""What runs on Ray, without Ray: real servers, and a register that is asked as an actor would be."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerolayer import cli
from zerolayer.cluster.ray_fleet import Fleet
from zerolayer.cluster.ray_node import Node, Register

QUICK = ("--engine", "mock:step_us=500", "--slots", "2", "--ledger", "off")


class Handle:
    """A register as Ray hands it out: methods have ``remote``, and ``got`` takes their results."""

    def __init__(self, register: Register) -> None:
        self.join = SimpleNamespace(remote=register.join)


def got(reference: Any) -> Any:
    """What ``ray.get`` gives."""
    return reference


def test_whoever_joins_is_told_of_the_others() -> None:
    register = Register()
    assert register.join(0, "http://a:1") == []
    assert register.join(1, "http://b:1") == ["http://a:1"]


def test_a_node_that_comes_back_elsewhere_has_its_new_address_only() -> None:
    register = Register()
    register.join(0, "http://a:1")
    register.join(0, "http://c:1")
    assert register.addresses() == {0: "http://c:1"}


def test_a_node_serves_at_the_address_that_it_registered() -> None:
    register = Register()
    node = Node(3, "127.0.0.1", 0, QUICK, Handle(register), got)
    try:
        assert register.addresses() == {3: node.address()}
        with urllib.request.urlopen(f"{node.address()}/readyz") as reply:
            assert reply.headers["x-zl-node"] == node.address()
    finally:
        assert node.stop() == 0


ORPHAN = """
import os, sys, time
sys.path.insert(0, {tests!r})
from test_ray import QUICK, Handle, Node, Register, got
if os.fork():
    os.wait()
    sys.exit()
node = Node(0, "127.0.0.1", 0, QUICK, Handle(Register()), got)
print(node.address(), flush=True)
time.sleep(60)
"""


def test_a_node_ends_with_its_server_when_rays_own_process_on_its_machine_is_gone() -> None:
    """Its machine counts as gone then, and another node takes its place."""
    command = [sys.executable, "-c", ORPHAN.format(tests=str(Path(__file__).parent))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ray:
        address = next(line.strip() for line in ray.stdout if line.startswith("http"))  # the server speaks before
        assert answers(address)
        ray.kill()
    deadline = time.monotonic() + 20
    while answers(address):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def test_a_node_whose_server_does_not_start_says_so() -> None:
    with pytest.raises(RuntimeError, match="ended with 2 before it was ready"):
        Node(0, "127.0.0.1", 0, ("--slots", "0"), Handle(Register()), got)


def test_gpus_are_asked_for_only_when_wanted() -> None:
    assert Fleet(cpus=2).bundle == {"CPU": 2}
    assert Fleet(gpus=1).bundle == {"CPU": 1, "GPU": 1}


def test_without_ray_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["ray", "status"]) == 1
    assert "pip install 'zerolayer[ray]'" in capsys.readouterr().err
