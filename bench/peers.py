#!/usr/bin/env python3
"""zerolayer against other servers of the same model, one at a time on the whole machine, in turn, several rounds.

Each round starts every server, waits until it answers, measures the same closed loops with the same client
(``bench/serve.py``), reads its memory and its processor time while idle, and stops it.

    python bench/peers.py bench/peers.toml --json result.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import median_rows, table
from own_server import answers, free_port
from serve import Bench, Target, first_model
from serve import parse as parse_serve

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
IDLE_S = 2.0


@dataclass(frozen=True)
class Peer:
    """How one server is started; ``{port}`` is a free port, ``$NAME`` the environment."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    own: bool = False

    def argv(self, port: int) -> list[str]:
        """The command line on ``port``."""
        return [os.path.expandvars(part).replace("{port}", str(port)) for part in self.command]

    def environ(self) -> dict[str, str]:
        """The environment of the process."""
        return {**os.environ, **{name: os.path.expandvars(value) for name, value in self.env.items()}}


def read_peers(path: Path) -> list[Peer]:
    """The peers that a file such as ``bench/peers.toml`` lists."""
    listed = tomllib.loads(path.read_text())["peer"]
    return [Peer(peer["name"], tuple(peer["command"]), peer.get("env", {})) for peer in listed]


def own(name: str, weights: str, slots: int) -> Peer:
    """zerolayer itself, installed beside this interpreter."""
    command = (sys.executable, "-m", "zerolayer", "serve", "--host", "127.0.0.1", "--port", "{port}")
    sizes = ("--admin", "127.0.0.1:0", "--slots", str(slots), "--slot-tokens", "512", "--weights", weights)
    return Peer(name, command + sizes, own=True)


def tree(pid: int) -> list[int]:
    """``pid`` and all its descendants that still live."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in children for found in tree(int(child)))]


def resident_mb(pid: int) -> float:
    """Resident memory of the whole tree, in MB; pages shared within it count once for each process."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_s(pid: int) -> float:
    """Processor seconds that the tree has used."""
    ticks = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks * TICK_S


@contextlib.contextmanager
def started(peer: Peer, start_s: float) -> Iterator[tuple[str, int, float]]:
    """URL, process id and the seconds until it answered."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        begun = time.monotonic()
        # A group of its own, so that it can be ended whole; the same session, so that its priority is the client's.
        process = subprocess.Popen(
            peer.argv(port), stdout=log, stderr=subprocess.STDOUT, env=peer.environ(), process_group=0
        )
        try:
            while not answers(port, "/v1/models"):
                if process.poll() is not None or time.monotonic() - begun > start_s:
                    log.seek(0)
                    raise SystemExit(f"{peer.name} is not ready:\n{log.read().decode(errors='replace')[-3000:]}")
                time.sleep(0.02)
            yield url, process.pid, time.monotonic() - begun
        finally:
            for sent in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sent)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)


def measure(bench: Bench, peer: Peer, number: int, start_s: float) -> dict[str, Any]:
    """All loops of one round against one server; what its process costs beside."""
    with started(peer, start_s) as (url, pid, ready_s):
        bench.round(number, Target(peer.name, url, first_model(url)))
        time.sleep(1)
        before = cpu_s(pid)
        time.sleep(IDLE_S)
        idle = (cpu_s(pid) - before) / IDLE_S
        return {"server": peer.name, "round": number, "ready_s": ready_s, "idle_cores": idle, "mb": resident_mb(pid)}


def best_peers(rows: Sequence[Mapping[str, Any]], ours: Sequence[str]) -> list[dict[str, Any]]:
    """For each run the better of our rows against the best peer, separately for rate and for time to first token."""
    out = []
    for run in dict.fromkeys(row["run"] for row in rows):
        own_rows = [row for row in rows if row["run"] == run and row["server"] in ours]
        peers = [row for row in rows if row["run"] == run and row["server"] not in ours]
        if not peers:
            continue
        rate = max(peers, key=lambda row: row["out_tok_s"])
        first = min(peers, key=lambda row: row["ttft_p50_ms"])
        out += [
            {
                "run": run,
                "server": row["server"],
                "out_tok_s": row["out_tok_s"],
                "best_peer": rate["server"],
                "best_peer_tok_s": rate["out_tok_s"],
                "rate_ratio": row["out_tok_s"] / rate["out_tok_s"],
                "ttft_p50_ms": row["ttft_p50_ms"],
                "fastest_peer": first["server"],
                "fastest_peer_ttft_ms": first["ttft_p50_ms"],
                "ttft_ratio": row["ttft_p50_ms"] / first["ttft_p50_ms"],
            }
            for row in own_rows
        ]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path, help="the peers' commands; see bench/peers.toml")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--closed", default="1,8,32", help="numbers of workers (default 1,8,32)")
    parser.add_argument("--per-worker", type=int, default=2, help="requests for each worker, at least 6 in all")
    parser.add_argument("--slots", type=int, default=32, help="of zerolayer (default 32)")
    parser.add_argument("--weights", default="exact,int8", help="modes of zerolayer to measure")
    parser.add_argument("--start-s", type=float, default=600, help="how long a server may take to start")
    parser.add_argument("--retry", action="store_true", help="obey retry-after-ms, for more workers than slots")
    parser.add_argument("--json", "--json-out", type=Path)
    given = parser.parse_args()
    ours = [own(f"zerolayer {mode}", mode, given.slots) for mode in given.weights.split(",") if mode]
    peers = read_peers(given.peers)
    arguments = ["--closed", given.closed, "--open", "", *(["--retry"] if given.retry else [])]
    bench, processes = Bench(parse_serve([*arguments, "--per-worker", str(given.per_worker)])), []
    for number in range(1, given.rounds + 1):
        for peer in [*ours, *peers]:
            print(f"# {time.strftime('%H:%M:%S')} starting {peer.name}", file=sys.stderr)
            processes.append(measure(bench, peer, number, given.start_s))
            if given.json:
                rows = median_rows(bench.rows)
                result = {
                    "version": 1,
                    "medians": rows,
                    "ratios": best_peers(rows, [mine.name for mine in ours]),
                    "processes": processes,
                    "rounds": bench.rows,
                }
                given.json.write_text(json.dumps(result, indent=1) + "\n")
    rows = median_rows(bench.rows)
    print(table(rows))
    for line in best_peers(rows, [mine.name for mine in ours]):
        print(
            f"{line['run']}: {line['server']} {line['rate_ratio']:.2f} x the rate of {line['best_peer']}, "
            f"{line['ttft_ratio']:.2f} x the time to first token of {line['fastest_peer']}"
        )


if __name__ == "__main__":
    main()
