"""The process that starts nodes: with small programs in their place, and once with two real ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reference.server import is_ready, own_host
from zerolayer import cli
from zerolayer.client.client import Client
from zerolayer.client.errors import Refused
from zerolayer.client.retry import RetryPolicy
from zerolayer.serve.devices import Device
from zerolayer.serve.parent import Parent

PROGRAM = """
import os, signal, socket, sys, time
with open(sys.argv[1], "a") as log: print(os.getpid(), file=log)
def tell(text): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(text, os.environ["NOTIFY_SOCKET"])
signal.signal(signal.SIGTERM, lambda *_: os._exit(int(sys.argv[2])))
"""
SERVES = "tell(b'READY=1')\nwhile True:\n  time.sleep(0.05)\n  tell(b'WATCHDOG=1')"
HANGS = "tell(b'READY=1')\ntime.sleep(60)"
DIES = "tell(b'READY=1')\nsys.exit(3)"
REFUSES = "sys.exit(2)"


def started(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def device(tmp_path: Path, name: str, program: str, status: int = 0) -> tuple[Device, Path]:
    log = tmp_path / f"{name}.pids"
    command = (sys.executable, "-S", "-c", PROGRAM + program, str(log), str(status))
    return Device(name, "http://127.0.0.1:1", "http://127.0.0.1:2", command), log


def run(wanted: list[Device], until: Callable[[], object], tmp_path: Path, silence_ns: int = 10**9) -> int:
    """The parent's exit code when it is told to stop as soon as ``until`` holds."""

    async def both() -> int:
        parent = Parent(wanted, tmp_path, os.environ, silence_ns)
        task = asyncio.create_task(parent.run())
        deadline = time.monotonic() + 20
        while not until() and not task.done():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        return await asyncio.wait_for(task, 20)

    return asyncio.run(both())


def test_a_node_that_dies_is_started_again_and_the_other_one_goes_on(tmp_path) -> None:
    dies, deaths = device(tmp_path, "0", DIES)
    serves, log = device(tmp_path, "1", SERVES)
    run([dies, serves], lambda: len(started(deaths)) >= 3, tmp_path)
    assert len(started(log)) == 1


def test_a_node_that_gives_no_sign_of_life_is_killed_and_started_again(tmp_path) -> None:
    hangs, log = device(tmp_path, "0", HANGS)
    run([hangs], lambda: len(started(log)) >= 2, tmp_path, silence_ns=200_000_000)
    with pytest.raises(ProcessLookupError):
        os.kill(started(log)[0], 0)


def test_a_contract_that_is_refused_ends_all_of_them_with_its_code(tmp_path) -> None:
    wanted = [device(tmp_path, "0", REFUSES)[0], device(tmp_path, "1", "time.sleep(60)")[0]]
    assert run(wanted, lambda: False, tmp_path) == 2


@pytest.mark.parametrize("status", [0, 7])
def test_the_code_of_a_node_that_ends_badly_is_the_parents(tmp_path, status) -> None:
    node, log = device(tmp_path, "0", "with open(sys.argv[1], 'a') as log: print(1, file=log)\n" + SERVES, status)
    assert run([node], lambda: len(started(log)) == 2, tmp_path) == status


def test_the_nodes_live_on_without_their_parent(tmp_path) -> None:
    quiet = "tell(b'READY=1')\ntime.sleep(60)"
    node, log = device(tmp_path, "0", quiet)
    code = f"""
import asyncio, pathlib
from zerolayer.serve.devices import Device
from zerolayer.serve.parent import Parent
asyncio.run(Parent([{node!r}], pathlib.Path({str(tmp_path)!r}), {{}}).run())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert "ready" in parent.stdout.readline()
    parent.kill()
    parent.wait()
    (pid,) = started(log)
    try:
        time.sleep(0.2)
        assert "sleep" in Path(f"/proc/{pid}/cmdline").read_text()
    finally:
        os.kill(pid, signal.SIGKILL)


CORES = sorted(os.sched_getaffinity(0))[:2]


@pytest.fixture
def fleet(tmp_path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The parent of two real nodes, both ready, and their addresses."""
    ledger = str(tmp_path / "ledger")
    host = own_host()  # the second node's ports are the next ones
    ports = ["--host", host, "--port", "21800", "--admin", f"{host}:21801"]
    arguments = ["--devices", ",".join(map(str, CORES)), "--engine", "mock:step_us=20000", "--ledger", ledger, *ports]
    command = [sys.executable, "-m", "zerolayer", "serve", *arguments]
    errors = tmp_path / "stderr"
    with errors.open("w") as file:
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
    assert parent.stdout is not None
    lines = iter(parent.stdout.readline, "")
    addresses = [f"http://{host}:21800", f"http://{host}:21802"]
    try:
        assert any("2 nodes are ready" in line for line in lines), errors.read_text()
        yield parent, addresses
    finally:
        pids = nodes_of(parent.pid)
        parent.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.communicate()  # not before: a node that lives on has the other end


def nodes_of(parent: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def serves(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    return is_ready(int(port), host)


def states(address: str) -> list[str]:
    with urllib.request.urlopen(f"{address}/v1/nodes", timeout=5) as reply:
        return [node["state"] for node in json.load(reply)["nodes"]]


def usage_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """How many requests the ledger tells of."""
    capsys.readouterr()
    assert cli.main(["usage", "--ledger", str(folder), "--json"]) == 0
    return sum(row["requests"] for row in json.loads(capsys.readouterr().out)["rows"])


def soon(holds: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(len(CORES) < 2, reason="two devices need two cores")
def test_two_nodes_live_and_die_alone(fleet, tmp_path, capsys) -> None:
    parent, (first, second) = fleet
    pids = nodes_of(parent.pid)
    allowed = [Path(f"/proc/{pid}/status").read_text().split("Cpus_allowed_list:")[1].split()[0] for pid in pids]
    assert allowed == [str(core) for core in CORES]
    soon(lambda: states(first) == states(second) == ["ready", "ready"])

    os.kill(pids[0], signal.SIGKILL)
    assert Client(second).generate("alone", max_tokens=4).answer().outcome.completion_tokens == 4
    soon(lambda: serves(first))
    assert nodes_of(parent.pid) != pids
    assert pids[1] in nodes_of(parent.pid)

    soon(lambda: states(second) == ["ready", "ready"])
    with Client(second).generate("to the end", max_tokens=60) as stream:
        next(iter(stream))
        os.kill(pids[1], signal.SIGTERM)
        soon(lambda: not serves(second))
        with pytest.raises(Refused) as refused:
            Client(second, retry=RetryPolicy(spare=0, share=0)).generate("new", max_tokens=4).answer()
        assert (refused.value.status_code, refused.value.retry_after_ms) == (503, 1000)
        moved = Client([second, first]).generate("elsewhere", max_tokens=4).answer()
        assert moved.node == first
        assert "".join(stream)
        assert stream.outcome.completion_tokens == 60

    soon(lambda: pids[1] not in nodes_of(parent.pid))
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(20) == 0
    for address, answers in ((first, 1), (second, 2)):
        folder = tmp_path / "ledger" / address.rpartition(":")[2]
        assert cli.main(["usage", "--ledger", str(folder), "--verify"]) == 0
        assert usage_of(folder, capsys) >= answers
