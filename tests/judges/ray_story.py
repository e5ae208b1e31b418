"""A fleet on a real Ray cluster of a head and three machines, told as JSON; run where only ``lo`` is (see test_ray.py).

unshare --map-root-user --net --pid --fork --kill-child --mount-proc python ray_story.py
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

SERVE = ("--", "--engine", "mock:step_us=2000", "--slots", "4")
PATIENCE_S = 60.0


def command(cluster: Cluster, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
    """``zerolayer ray VERB``."""
    argv = [sys.executable, "-m", "zerolayer", "ray", verb, "--ray", cluster.address, "--json", *more]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def places(cluster: Cluster) -> list[dict[str, Any]]:
    """What ``status`` says; a place that is being replaced is not alive."""
    shown = command(cluster, "status").stdout
    return json.loads(shown)["nodes"] if shown else []


def replaced(cluster: Cluster, lost: str) -> list[str]:
    """The addresses, once all live again and ``lost`` is none of them; [] when that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        now = places(cluster)
        addresses = [place["address"] for place in now]
        if lost not in addresses and all(place["alive"] for place in now):
            return addresses
        time.sleep(0.2)
    return []


def known(address: str, others: int) -> list[str]:
    """The nodes that one node calls ready, once there are ``others`` besides it."""
    deadline = time.monotonic() + PATIENCE_S
    ready: list[str] = []
    while time.monotonic() < deadline and len(ready) != others + 1:
        time.sleep(0.1)
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/v1/nodes") as reply:
            nodes = json.load(reply)["nodes"]
            ready = sorted(node["address"] for node in nodes if node["state"] == "ready")
    return ready


def answer(address: str) -> int:
    """Tokens of a completion, asked of the node itself."""
    body = json.dumps({"model": "smollm2", "prompt": "One", "max_tokens": 5, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{address}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return int(json.load(reply)["usage"]["completion_tokens"])


def server_of(address: str) -> int:
    """The process that serves ``address``; 0 for none."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "--address" in words and words[words.index("--address") + 1] == address:
                return int(folder.name)
    return 0


def parent_of(pid: int) -> int:
    """The process that started ``pid``."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3):
        cluster.add_node(num_cpus=1)
    told: dict[str, Any] = {}
    first = json.loads(command(cluster, "up", "--nodes", "2", *SERVE).stdout)["addresses"]
    told["nodes"], told["second"] = first, command(cluster, "up").returncode
    told["known"] = [known(address, 1) for address in first]
    told["answers"] = [answer(address) for address in first]

    os.kill(server_of(first[0]), signal.SIGKILL)
    told["after_server"] = replaced(cluster, first[0])
    machine = parent_of(parent_of(server_of(first[1])))  # server, actor, raylet
    os.kill(machine, signal.SIGKILL)
    told["after_machine"] = replaced(cluster, first[1])
    told["orphan"] = server_of(first[1])
    told["known_after"] = [known(address, 1) for address in told["after_machine"]]

    told["too_many"] = command(cluster, "up", "--name", "other", "--nodes", "5", "--wait", "2").stderr
    told["ended"] = json.loads(command(cluster, "down").stdout)["ended"]
    told["left"] = [server_of(address) for address in told["after_machine"]]
    cluster.shutdown()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
