"""The network of one of four nodes is taken down under load and up again, told as JSON (see test_faults.py).

unshare --map-root-user --net --pid --fork --kill-child --mount-proc python cut_story.py FOLDER
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from judges.fault_load import SLOTS, Load, Node, ask, running_nodes
from reference.server import own_host
from zerolayer import AsyncClient
from zerolayer.client.retry import RetryPolicy

HERE, THERE, PORT = "10.77.0.1", "10.77.0.2", 8000
WANTED = 100  # answers of the others, while the node is cut off
WAIT_S = 1.0  # for the head of a reply; whatever began then is a stream, and cut when it is silent for so long


def ip(*words: str) -> None:
    """``ip WORDS``."""
    subprocess.run(["ip", *words], check=True)


def far_node(ledger: Path) -> subprocess.Popen[bytes]:
    """A node in a network of its own, at the other end of a pair of interfaces."""
    serve = [sys.executable, "-m", "zerolayer", "serve", "--engine", "mock:step_us=5000", "--slots", str(SLOTS)]
    serve += ["--host", THERE, "--port", str(PORT), "--admin", f"{own_host()}:8001", "--insecure"]
    serve += ["--ledger", str(ledger)]
    script = f"ip link set lo up; until ip address add {THERE}/24 dev far 2>/dev/null; do sleep 0.05; done; "
    script += 'ip link set far up; exec "$@"'
    node = subprocess.Popen(["unshare", "--net", "sh", "-c", script, "sh", *serve], stdout=subprocess.DEVNULL)
    ip("link", "add", "near", "type", "veth", "peer", "name", "far")
    ip("address", "add", f"{HERE}/24", "dev", "near")
    ip("link", "set", "near", "up")
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{node.pid}/ns/net").readlink() == own:
        time.sleep(0.01)
    ip("link", "set", "far", "netns", str(node.pid))
    return node


async def until_answered(url: str) -> str:
    """The text that the node makes, as soon as it is up."""
    deadline = time.monotonic() + 60
    while True:
        try:
            async with AsyncClient(url, answer_within_s=WAIT_S) as client:
                return (await ask(client)).text
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def story(far: str, near: list[Node]) -> dict[str, Any]:
    """What became of the calls."""
    expected = await until_answered(far)
    urls = [far, *(node.url for node in near)]
    told: dict[str, Any] = {"slots": SLOTS, "wanted": WANTED}
    policy = RetryPolicy(spare=200)
    async with AsyncClient(urls, retry=policy, answer_within_s=WAIT_S, timeout_s=WAIT_S) as client:
        load = Load(client, expected)
        await load.reach(60)
        told["before"] = load.answers[far]
        ip("link", "set", "near", "down")
        await asyncio.sleep(WAIT_S / 2)  # what was on its way is read
        counted = load.answers.copy()
        await load.reach(WANTED, *urls[1:])
        during = load.answers - counted
        told["during"] = {"cut off": during[far], "others": min(WANTED, during.total() - during[far])}
        ip("link", "set", "near", "up")
        counted = load.answers.copy()
        await load.reach(5, far)
        told["after"] = (load.answers - counted)[far]
        await load.stop()
        statistics = client.statistics
    told |= {name: getattr(statistics, name) for name in ("failed", "answered", "unanswered", "cut")}
    return told | {"bad": load.bad, "wrong": load.wrong}


def main() -> None:
    ip("link", "set", "lo", "up")
    folder = Path(sys.argv[1])
    far = far_node(folder / "far")
    try:
        with running_nodes(folder, 3) as near:
            before = sum(node.executed() for node in near)
            told = asyncio.run(story(f"http://{THERE}:{PORT}", near))
            executed = sum(node.executed() for node in near) - before
    finally:
        far.kill()
        far.wait()
    told["executed"] = executed + Node.executed_by(folder / "far") - 1  # the answer that said what to expect
    print(json.dumps(told))


if __name__ == "__main__":
    main()
