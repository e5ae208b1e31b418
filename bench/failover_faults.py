"""The nodes of ``failover.py``, what happens to one of them, and what they say afterwards that they have executed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from failover_relay import SLOWER

from cluster.fake_servers import FakeNameServer
from judges.cut_story import PORT, THERE, far_node, ip
from judges.fault_load import MOCK, NODES, SLOTS, Node, started
from zerolayer.client.options import Protocol as Spoken

ALONE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
NAME = "_http._tcp.nodes"
SKEW_NS = {"ahead": 3600 * 10**9, "behind": -3600 * 10**9}
_LIVING = (NODES - 1) / NODES


@dataclass(frozen=True)
class Fault:
    """``share`` of the rate before is what the nodes that are well can do. ``protocol`` of the client, ``deadline_ms``.

    ``lasts``: the rate is counted while it goes on, since all is as before when it is over. ``of_client``: it happens
    to what only a client of ours has; behind a proxy nothing would happen.
    """

    name: str
    does: str
    share: float = _LIVING
    protocol: Spoken = "auto"
    lasts: bool = False
    deadline_ms: int = 3000
    of_client: bool = False


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill", "kill -9 of one"),
        Fault("stop", "SIGSTOP of one"),
        Fault("slow", f"one {SLOWER}x slower", _LIVING + 1 / NODES / SLOWER),
        # JSON, because in the schema's bytes most wrong bits are another text, which only a checksum could tell.
        Fault("corrupt", "one corrupts replies", protocol="json"),
        Fault("restart", "all in turn", lasts=True),
        Fault("cut", "network of one cut"),
        Fault("dns", "name server gone", 1.0, of_client=True),
        Fault("ahead", "clock an hour ahead", 1.0, of_client=True),
        Fault("behind", "clock an hour behind", 1.0, of_client=True),
    )
}
REAL = Fault("kill", "kill -9 of one of two", 1.0, deadline_ms=10_000)  # of the survivor's own rate


class Missing(Exception):
    """Something that is not installed, or not allowed; the text says what helps."""


class Struck(Protocol):
    """Nodes, one of which something will happen to."""

    urls: list[str]
    asked: list[str]  # what a client of ours is given
    skew_ns: int  # of its clock, against that of the nodes

    def settled(self) -> None:
        """The load is at its full height."""

    async def strike(self) -> None:
        """Let it happen; return when it is over, or cannot get worse."""

    def executed(self) -> int:
        """End all nodes: for how many requests they made tokens."""


@dataclass
class Fleet:
    """Nodes on this machine; with a relay before the first one where ``fault`` is one of the wire."""

    fault: str
    nodes: list[Node]
    relay: subprocess.Popen[str] | None = None
    urls: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    names: FakeNameServer | None = None
    skew_ns: int = 0

    def __post_init__(self) -> None:
        self.urls = [node.url for node in self.nodes]
        self._put_before_them()
        self.asked = self.asked or self.urls

    def _put_before_them(self) -> None:
        if self.fault == "dns":
            self.names = FakeNameServer()
            for node in self.nodes:
                self.names.add(NAME, 33, node.host, ttl=1, port=node.port)
            self.asked = [f"dns+srv://{NAME}?server={self.names.address}"]
        if self.fault in ("slow", "corrupt"):
            command = [sys.executable, str(Path(__file__).parent / "failover_relay.py"), self.urls[0]]
            self.relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.urls[0] = self.relay.stdout.readline().strip()

    def settled(self) -> None:
        if self.relay is not None:
            self._tell("count")

    async def strike(self) -> None:
        victim = self.nodes[0]
        if self.relay is not None:
            self._tell(self.fault)
        elif self.fault == "kill":
            await asyncio.to_thread(victim.end, signal.SIGKILL)
        elif self.names is not None:
            self.names.silent = True
        elif self.fault in SKEW_NS:
            self.skew_ns = SKEW_NS[self.fault]
        elif self.fault == "stop":
            victim.signal(signal.SIGSTOP)
        else:
            for node in self.nodes:
                await asyncio.to_thread(node.end, signal.SIGTERM)
                node.start()
                await asyncio.to_thread(node.wait)

    def executed(self) -> int:
        self.close()
        if self.fault == "stop":
            self.nodes[0].signal(signal.SIGCONT)
            time.sleep(0.5)  # it reads what was sent meanwhile
        for node in self.nodes[self.fault == "kill" :]:
            node.end(signal.SIGTERM)
        return sum(node.executed() for node in self.nodes)

    def close(self) -> None:
        """End the relay and the name server. Idempotent."""
        if self.names is not None:
            self.names.close()
            self.names = None
        if self.relay is not None:
            self.relay.stdin.close()
            self.relay.wait(5)
            self.relay.stdout.close()
            self.relay = None

    def _tell(self, line: str) -> None:
        self.relay.stdin.write(f"{line}\n")
        self.relay.stdin.flush()


@dataclass
class CutOff:
    """Three nodes here, one at the other end of a pair of interfaces, which is taken down. In a namespace only."""

    near: list[Node]
    far: subprocess.Popen[bytes]
    ledger: Path
    urls: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    skew_ns: int = 0

    def __post_init__(self) -> None:
        self.asked = self.urls = [f"http://{THERE}:{PORT}", *(node.url for node in self.near)]

    def settled(self) -> None:
        pass

    async def strike(self) -> None:
        await asyncio.to_thread(ip, "link", "set", "near", "down")

    def executed(self) -> int:
        self.far.send_signal(signal.SIGTERM)
        self.far.wait(30)
        for node in self.near:
            node.end(signal.SIGTERM)
        return sum(node.executed() for node in self.near) + Node.executed_by(self.ledger)


@contextlib.contextmanager
def fleet(fault: str, *, real: bool) -> Iterator[Struck]:
    """All nodes, ready. Raises ``Missing``."""
    with tempfile.TemporaryDirectory() as folder:
        if fault == "cut":
            with _cut_off(Path(folder)) as nodes:
                yield nodes
            return
        with started(_real() if real else [MOCK] * NODES, Path(folder)) as nodes:
            struck = Fleet(fault, nodes)
            try:
                yield struck
            finally:
                struck.close()


def _real() -> list[tuple[str, ...]]:
    """The flags of two nodes of the bundled model with a core each."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise Missing("two real nodes need two cores")
    return [("--devices", str(core), "--threads", "1", "--slot-tokens", "256") for core in cores]


@contextlib.contextmanager
def _cut_off(folder: Path) -> Iterator[CutOff]:
    ip("link", "set", "lo", "up")
    far = far_node(folder / "far")
    try:
        with started([MOCK] * (NODES - 1), folder) as near:
            yield CutOff(near, far, folder / "far")
    finally:
        far.kill()
        far.wait()


def alone(command: list[str]) -> list[str]:
    """The command in a network of its own. Raises ``Missing``."""
    for program, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            raise Missing(f"needs {program} (apt-get install {package})")
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        raise Missing("this system allows no network namespace (sysctl kernel.unprivileged_userns_clone=1)")
    return [*ALONE, *command]


__all__ = ["FAULTS", "REAL", "SLOTS", "Fault", "Missing", "Struck", "alone", "fleet"]
