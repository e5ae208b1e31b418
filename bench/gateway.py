"""The same engine with its own keys, limits and ledger, and behind nginx + LiteLLM proxy + Redis: what either adds.

    .venv/bin/python bench/gateway.py --litellm VENV/bin/litellm --json FILE

Needs nginx and redis-server (apt-get install nginx-light redis-server), and LiteLLM in an environment of its own
(python3 -m venv VENV && VENV/bin/pip install 'litellm[proxy]' redis). Chain: nginx, which writes a JSON request log,
forwards to one LiteLLM worker with a master key, Redis counting its limits of requests and tokens; its key database is
left out, since that needs an engine (Prisma's) that is downloaded when it starts. The server's engine is the mock with
one step a millisecond, eight tokens a request. The same engine is measured first without keys, limits and ledger, and
what the others take beyond that is what they add. All of it listens on loopback. About 3 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from figures import percentile
from lean_client import LoadLoop, Record
from own_server import free_port, own_server

MASTER = "sk-bench-master"
MODEL = "smollm2"
START_S = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
WORKERS = 8
ROUNDS = 4
ADDED = ("p50_ms", "p99_ms", f"p50_ms_of_{WORKERS}", f"p99_ms_of_{WORKERS}", "cpu_ms", "memory_mb")
Row = dict[str, float | str | int]


@dataclass
class Chain:
    """Something that answers requests: its address, its key, its processes, and what people had to write for it."""

    name: str
    url: str
    key: str
    pids: list[int]
    hops: int
    lines: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--litellm", metavar="PATH", default=shutil.which("litellm"), help="default: the one on the path"
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help=f"of load for each, by one client and by {WORKERS}; default 20"
    )
    parser.add_argument("--json", "--json-out", metavar="FILE", type=Path)
    options = parser.parse_args()
    missing = [name for name in ("nginx", "redis-server") if shutil.which(name) is None]
    if missing or not options.litellm:
        print(
            f"needs {', '.join([*missing, *(() if options.litellm else ['--litellm'])])}; see --help", file=sys.stderr
        )
        return 2
    print(f"about {math.ceil((6 * options.seconds + 60) / 60)} minutes ...", flush=True)
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        begun = (bare(), direct(Path(folder)), behind(Path(folder), options.litellm))
        chains = [stack.enter_context(chain) for chain in begun]
        seen = [Seen() for _ in chains]
        for chain in chains:
            load(chain, options.seconds / 10, WORKERS)  # not counted
        for number in range(ROUNDS):  # in turn, so that what else the machine does is everybody's
            print(f"round {number + 1} of {ROUNDS} ...", flush=True)
            for chain, counts in zip(chains, seen, strict=True):
                counts.add(chain, options.seconds / ROUNDS)
        rows = [counts.row(chain) for chain, counts in zip(chains, seen, strict=True)]
    compared = compare(*rows)
    show(rows, compared)
    if options.json:
        told = {
            "version": 1,
            "bench": "gateway",
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "load_average": load_average,
            "programs": versions(options.litellm),
            "rows": rows,
            "compared": compared,
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


@contextlib.contextmanager
def bare() -> Iterator[Chain]:
    """The engine behind its port, and nothing else: no keys, no limits, no ledger."""
    with own_server(MOCK) as (url, pid):
        yield Chain("engine alone", url, "none", [pid], 1, 0)


@contextlib.contextmanager
def direct(folder: Path) -> Iterator[Chain]:
    """Keys, limits and ledger in the server itself."""
    command = [sys.executable, "-m", "zerolayer", "keys"]
    subprocess.run([*command, "new", str(folder / "keys")], check=True, stdout=subprocess.DEVNULL)
    limits = ["--requests-per-minute", "10000000", "--tokens-per-minute", "1000000000"]
    issue = [*command, "issue", "--tenant", "bench", "--folder", str(folder / "keys"), *limits]
    key = subprocess.run(issue, check=True, capture_output=True, text=True).stdout.strip()
    contract = folder / "contract.toml"
    contract.write_text(f'[tenants]\nkey_set = "{folder}/keys/keyset.json"\nstate = "{folder}/budgets.log"\n')
    with own_server([*MOCK, "--contract", str(contract), "--ledger", str(folder / "ledger")]) as (url, pid):
        yield Chain("zerolayer", url, key, [pid], 1, lines(contract.read_text()))


MOCK = ("--engine", "mock:step_us=1000", "--slots", "16")


@contextlib.contextmanager
def behind(folder: Path, litellm: str) -> Iterator[Chain]:
    """nginx, then LiteLLM with Redis beside it, then the server without keys."""
    with own_server(MOCK) as (url, pid), contextlib.ExitStack() as stack:
        redis, proxy, front = free_port(), free_port(), free_port()
        (folder / "litellm.yaml").write_text(litellm_config(url, redis))
        (folder / "nginx.conf").write_text(nginx_config(folder, front, proxy))
        save = ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        others = [stack.enter_context(process(["redis-server", "--port", str(redis), "--bind", "127.0.0.1", *save]))]
        proxy_command = [litellm, "--config", str(folder / "litellm.yaml"), "--port", str(proxy), "--host", "127.0.0.1"]
        others.append(stack.enter_context(process(proxy_command)))
        others.append(stack.enter_context(process(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)])))
        wait_for(front)
        written = lines((folder / "litellm.yaml").read_text()) + lines((folder / "nginx.conf").read_text())
        yield Chain("nginx + LiteLLM + Redis", f"http://127.0.0.1:{front}", MASTER, [pid, *others], 3, written)


def litellm_config(url: str, redis: int) -> str:
    return f"""model_list:
  - model_name: {MODEL}
    litellm_params:
      model: openai/{MODEL}
      api_base: {url}/v1
      api_key: none
      rpm: 10000000
      tpm: 1000000000
router_settings:
  routing_strategy: usage-based-routing-v2
  redis_host: 127.0.0.1
  redis_port: {redis}
litellm_settings:
  json_logs: true
general_settings:
  master_key: {MASTER}
"""


def nginx_config(folder: Path, port: int, proxy: int) -> str:
    return f"""daemon off;
worker_processes 1;
error_log stderr error;
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  log_format json escape=json '{{"time":"$time_iso8601","status":$status,"took":$request_time,"request":"$request"}}';
  access_log {folder}/access.log json;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream proxy {{ server 127.0.0.1:{proxy}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://proxy;
      proxy_http_version 1.1;
      proxy_set_header connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@contextlib.contextmanager
def process(command: list[str]) -> Iterator[int]:
    """A process and what it has started, ended with the block."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield started.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def wait_for(port: int) -> None:
    """Until a whole answer comes through the chain."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            body, headers = (
                json.dumps(body_of(0)),
                {"content-type": "application/json", "authorization": f"Bearer {MASTER}"},
            )
            connection.request("POST", "/v1/chat/completions", body, headers)
            reply = connection.getresponse()
            if reply.read() and reply.status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.5)
    raise SystemExit("the chain did not answer; start its parts by hand to see why")


def body_of(number: int) -> dict[str, object]:
    question = [{"role": "user", "content": f"Question {number}: why is the sky blue?"}]
    return {"model": MODEL, "messages": question, "max_tokens": 8, "stream": True}


def payload(chain: Chain, number: int) -> bytes:
    body = json.dumps(body_of(number)).encode()
    host = chain.url.removeprefix("http://")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {chain.key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Seen:
    """What was measured of one chain so far."""

    def __init__(self) -> None:
        self.alone: list[Record] = []
        self.many: list[Record] = []
        self.elapsed_s = self.cpu_s = 0.0

    def add(self, chain: Chain, seconds: float) -> None:
        """One client for a while, then many, with the processor time of all processes."""
        self.alone += load(chain, seconds, 1)
        pids = family(chain.pids)
        before, started = cpu_s(pids), time.perf_counter()
        self.many += load(chain, seconds, WORKERS)
        self.elapsed_s += time.perf_counter() - started
        self.cpu_s += cpu_s(pids) - before

    def row(self, chain: Chain) -> Row:
        """Its figures."""
        pids, ok = family(chain.pids), sum(record.ok for record in self.many)
        return {
            "chain": chain.name,
            "ok": ok,
            "failed": sum(not record.ok for record in self.alone + self.many),
            "p50_ms": of_good(self.alone, 50),
            "p99_ms": of_good(self.alone, 99),
            f"p50_ms_of_{WORKERS}": of_good(self.many, 50),
            f"p99_ms_of_{WORKERS}": of_good(self.many, 99),
            "requests_s": ok / self.elapsed_s,
            "cpu_ms": 1000 * self.cpu_s / max(1, ok),
            "memory_mb": sum(memory_bytes(pid) for pid in pids) / 1e6,
            "processes": len(pids),
            "hops": chain.hops,
            "config_lines": chain.lines,
        }


def of_good(records: list[Record], which: float) -> float:
    """A percentile of what whole replies took, in milliseconds."""
    return percentile([(record.end_ns - record.intended_ns) / 1e6 for record in records if record.ok], which) or 0.0


def load(chain: Chain, seconds: float, workers: int) -> list[Record]:
    """A closed loop: new requests for so long, and all replies."""
    until, numbers = time.monotonic() + seconds, itertools.count()
    loop = LoadLoop(chain.url)
    try:
        payloads = (payload(chain, number) for number in numbers)
        return loop.closed(itertools.takewhile(lambda _: time.monotonic() < until, payloads), workers)
    finally:
        loop.close()


def compare(alone: Row, own: Row, other: Row) -> dict[str, dict[str, float | None]]:
    """What either adds to the engine alone, where that is a cost, and how many times as much the chain is.

    Of what zerolayer adds less than nothing to, which is noise, nothing is a multiple: None.
    """
    table = {}
    for name, value in alone.items():
        if name in ("chain", "ok", "failed"):
            continue
        base = float(value) if name in ADDED else 0.0
        ours, theirs = float(own[name]) - base, float(other[name]) - base
        shown = f"added {name}" if name in ADDED else name
        ratio = theirs / ours if ours > 0 else None
        table[shown] = {"zerolayer": ours, "chain": theirs, "times": ratio}
    return table


def versions(litellm: str) -> dict[str, str]:
    """What was compared with."""
    said = {}
    package = "import importlib.metadata; print(importlib.metadata.version('litellm'))"
    commands = {
        "nginx": ["nginx", "-v"],
        "redis": ["redis-server", "-v"],
        "litellm": [str(Path(litellm).with_name("python")), "-c", package],
    }
    for name, command in commands.items():
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+\.\d+", result.stdout + result.stderr)
        said[name] = found[0] if found else "unknown"
    return said


def family(pids: list[int]) -> list[int]:
    """The processes and all that descend from them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = list(pids)
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid and child not in found]
    return found


def cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def show(rows: list[Row], compared: dict[str, dict[str, float | None]]) -> None:
    """All three, then what either adds, with the chain as a multiple."""
    print(f"\n{'':<22}" + "".join(f"{row['chain']:>26}" for row in rows))
    for name, value in rows[0].items():
        if not isinstance(value, str):
            print(f"{name:<22}" + "".join(f"{float(row[name]):>26.2f}" for row in rows))
    print(f"\n{'':<22}{'zerolayer':>26}{'chain':>26}{'times':>10}")
    for name, figures in compared.items():
        times = "noise" if figures["times"] is None else f"{figures['times']:.2f}"
        print(f"{name:<22}{figures['zerolayer']:>26.3f}{figures['chain']:>26.3f}{times:>10}")


if __name__ == "__main__":
    raise SystemExit(main())
