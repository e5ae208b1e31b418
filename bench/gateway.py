"""The same engine with its own keys and limits, and behind nginx + LiteLLM proxy + Redis: what the chain adds.

    .venv/bin/python bench/gateway.py --litellm VENV/bin/litellm --json FILE

Needs nginx and redis-server (apt-get install nginx-light redis-server), and LiteLLM in an environment of its own
(python3 -m venv VENV && VENV/bin/pip install 'litellm[proxy]' redis). Chain: nginx forwards to one LiteLLM worker with
a master key, Redis counting its limits of requests and tokens, and JSON request logs; its key database is left out,
since that needs an engine (Prisma's) that is downloaded when it starts. The server's engine is the mock with one step
a millisecond, so what is measured is everything but arithmetic. All of it listens on loopback. About 2 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
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
        "--requests", type=int, default=2000, help=f"for each chain, by {WORKERS} workers; default 2000"
    )
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    missing = [name for name in ("nginx", "redis-server") if shutil.which(name) is None]
    if missing or not options.litellm:
        print(
            f"needs {', '.join([*missing, *(() if options.litellm else ['--litellm'])])}; see --help", file=sys.stderr
        )
        return 2
    print("about 2 minutes ...", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for chain in (direct(Path(folder)), behind(Path(folder), options.litellm)):
            with chain as started:
                print(f"{started.name}: {options.requests} requests ...", flush=True)
                rows.append(measure(started, options.requests))
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({"version": 1, "rows": rows}, indent=2) + "\n")
    return 0


@contextlib.contextmanager
def direct(folder: Path) -> Iterator[Chain]:
    """Keys and limits in the server itself."""
    command = [sys.executable, "-m", "zerolayer", "keys"]
    subprocess.run([*command, "new", str(folder / "keys")], check=True, stdout=subprocess.DEVNULL)
    limits = ["--requests-per-minute", "10000000", "--tokens-per-minute", "1000000000"]
    issue = [*command, "issue", "--tenant", "bench", "--folder", str(folder / "keys"), *limits]
    key = subprocess.run(issue, check=True, capture_output=True, text=True).stdout.strip()
    contract = folder / "contract.toml"
    contract.write_text(f'[tenants]\nkey_set = "{folder}/keys/keyset.json"\nstate = "{folder}/budgets.log"\n')
    with own_server([*MOCK, "--contract", str(contract)]) as (url, pid):
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
  access_log {folder}/access.log;
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


def measure(chain: Chain, requests: int) -> dict[str, float | str | int]:
    """One closed loop after a warm-up; processor time and memory of all processes of the chain."""
    load(chain, max(WORKERS, requests // 10))
    pids = family(chain.pids)
    before, started = cpu_s(pids), time.perf_counter()
    records = load(chain, requests)
    elapsed = time.perf_counter() - started
    pids = family(chain.pids)
    good = [record for record in records if record.ok]
    took = [(record.end_ns - record.intended_ns) / 1e6 for record in good]
    return {
        "chain": chain.name,
        "ok": len(good),
        "p50_ms": percentile(took, 50) or 0.0,
        "p99_ms": percentile(took, 99) or 0.0,
        "requests_s": len(good) / elapsed,
        "cpu_ms": 1000 * (cpu_s(pids) - before) / max(1, len(good)),
        "memory_mb": sum(memory_bytes(pid) for pid in pids) / 1e6,
        "processes": len(pids),
        "hops": chain.hops,
        "config_lines": chain.lines,
    }


def load(chain: Chain, requests: int) -> list[Record]:
    loop = LoadLoop(chain.url)
    try:
        return loop.closed([payload(chain, number) for number in range(requests)], WORKERS)
    finally:
        loop.close()


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


def show(rows: list[dict[str, float | str | int]]) -> None:
    """Both, and the chain as a multiple."""
    own, other = rows
    print(f"\n{'':<16}{own['chain']:>14}{other['chain']:>26}{'times':>9}")
    for name, value in own.items():
        if isinstance(value, str):
            continue
        ratio = float(other[name]) / value if value else 0.0
        print(f"{name:<16}{value:>14.2f}{float(other[name]):>26.2f}{ratio:>9.2f}")


if __name__ == "__main__":
    raise SystemExit(main())
