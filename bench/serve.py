#!/usr/bin/env python3
"""Serving figures of zerolayer and any OpenAI-compatible peer: the same work, in one run, on one machine.

Closed loop: N workers, each sends its next request when the last one ends. Open loop: Poisson arrivals at a fixed rate;
"0.5x" is half the best closed-loop request rate of the same server in the same round.

    python bench/serve.py                                   starts zerolayer by itself
    python bench/serve.py --peer llama=http://127.0.0.1:8080 --rounds 3 --json result.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import platform
import random
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from figures import median_rows, ratios, summarise, table
from lean_client import LoadLoop
from own_server import own_server

COMMON = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea kid body back "
    "parent face others level office door health person art war history party result change morning reason research "
    "girl guy moment air teacher force education the and with from about into over after under between through during"
)
WORDS = tuple(COMMON.split())


@dataclass(frozen=True)
class Target:
    """A server to measure. ``model`` is what its requests name."""

    name: str
    url: str
    model: str


@dataclass(frozen=True)
class Work:
    """What every request asks for."""

    prompt_words: int
    output_tokens: int
    temperature: float
    seed: int

    def payloads(self, target: Target, label: str, count: int) -> list[bytes]:
        """``count`` requests as bytes on the wire, all distinct, the same for every server but new in every run."""
        rng = random.Random(f"{self.seed}/{label}")
        parts = urlsplit(target.url)
        out = []
        for _ in range(count):
            body = {
                "model": target.model,
                "prompt": " ".join(rng.choice(WORDS) for _ in range(self.prompt_words)),
                "max_tokens": self.output_tokens,
                "temperature": self.temperature,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            data = json.dumps(body, separators=(",", ":")).encode()
            head = (
                f"POST {parts.path.rstrip('/')}/v1/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
                f"content-type: application/json\r\nx-stainless-retry-count: 0\r\ncontent-length: {len(data)}\r\n\r\n"
            )
            out.append(head.encode() + data)
        return out


class Bench:
    """Runs the same work against every target in turn and keeps a row for each run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._work = Work(options.prompt_words, options.output_tokens, options.temperature, options.seed)
        self.rows: list[dict[str, Any]] = []

    def round(self, number: int, target: Target) -> None:
        """Every closed loop, then every open one."""
        options, best_rate, idle_ms = self._options, 0.0, None
        self._measure(target, f"warm-up {number}", concurrency=1, count=options.warmup)
        for workers in options.closed:
            count = options.requests or max(6, options.per_worker * workers)
            row = self._measure(target, f"closed {workers} {number}", concurrency=workers, count=count)
            best_rate = max(best_rate, row["req_s"])
            idle_ms = row["e2e_p50_ms"] if workers == 1 else idle_ms
            self._keep(row, target, f"closed {workers}", number, idle_ms)
        for wanted in options.open:
            rate = float(wanted[:-1]) * best_rate if wanted.endswith("x") else float(wanted)
            if rate <= 0:
                continue
            row = self._measure(target, f"open {wanted} {number}", rate=rate)
            self._keep(row | {"rate": rate}, target, f"open {wanted}", number, idle_ms)

    def _keep(self, row: dict[str, Any], target: Target, run: str, number: int, idle_ms: float | None) -> None:
        row |= {"server": target.name, "run": run, "round": number}
        row["p50_over_s0"] = row["e2e_p50_ms"] / idle_ms if idle_ms and row["e2e_p50_ms"] else None
        self.rows.append(row)
        rate = f"{row['out_tok_s']:.0f} out tok/s, {row['ok']} of {row['sent']} answered"
        print(f"# round {number}: {target.name}, {run}: {rate} {' '.join(row['errors'])}".rstrip(), file=sys.stderr)

    def _measure(
        self, target: Target, label: str, *, concurrency: int = 0, count: int = 0, rate: float = 0.0
    ) -> dict[str, Any]:
        offsets = arrivals(random.Random(f"{self._options.seed}/{label}"), rate, self._options.duration) if rate else []
        payloads = self._work.payloads(target, label, len(offsets) if rate else count)
        loop = LoadLoop(target.url, retry=self._options.retry, timeout_s=self._options.timeout)
        gc.collect()
        gc.disable()  # its pauses would be the server's latency
        load, cpu, start = os.getloadavg()[0], time.process_time(), time.perf_counter_ns()
        records = loop.open(payloads, offsets) if rate else loop.closed(payloads, concurrency)
        cpu = time.process_time() - cpu
        gc.enable()
        loop.close()
        return summarise(records, start, cpu) | {"load_average": load}


def arrivals(rng: random.Random, rate: float, duration_s: float) -> list[float]:
    """Poisson arrivals: offsets in seconds, at ``rate`` a second."""
    out, now = [], rng.expovariate(rate)
    while now < duration_s:
        out.append(now)
        now += rng.expovariate(rate)
    return out or [0.0]


def first_model(url: str) -> str:
    """The first model that the server lists."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as reply:
        return str(json.load(reply)["data"][0]["id"])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--url", help="measure this server instead of starting zerolayer")
    add("--model", help="model name for --url (default: the first one that it lists)")
    add("--peer", action="append", default=[], metavar="NAME=URL", help="another server to measure; repeatable")
    add("--closed", default="1,8,32", help="numbers of workers (default 1,8,32)")
    add("--open", default="0.5x,0.9x", help='rates: "2.5" a second, "0.5x" of the best closed-loop rate; "" for none')
    add("--requests", type=int, default=0, help="requests in each closed loop (default: --per-worker, at least 6)")
    add("--per-worker", type=int, default=3, help="requests for each worker of a closed loop (default 3)")
    add("--duration", type=float, default=20.0, help="seconds of arrivals in an open loop (default 20)")
    add("--rounds", type=int, default=1, help="repeat everything, servers in turn; the table shows medians")
    add("--warmup", type=int, default=2, help="requests before each round that do not count")
    add("--prompt-words", type=int, default=127, help="about one token each")
    add("--output-tokens", type=int, default=64)
    add("--temperature", type=float, default=0.7)
    add("--seed", type=int, default=1)
    add("--retry", action="store_true", help="obey retry-after-ms and try again; latencies run on")
    add("--timeout", type=float, default=600.0, help="seconds for one request")
    add("--slots", type=int, default=32, help="of the server started here (default 32)")
    add("--slot-tokens", type=int, default=512, help="of the server started here (default 512)")
    add("--serve", action="append", default=[], metavar="ARG", help="one more argument for the server started here")
    add("--json", "--json-out", type=Path, help="write every figure of every round")
    options = parser.parse_args(arguments)
    options.closed = [int(workers) for workers in options.closed.split(",") if workers]
    options.open = [rate.strip() for rate in options.open.split(",") if rate.strip()]
    for peer in options.peer:
        if "=" not in peer:
            parser.error("--peer takes NAME=URL")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write JSON."""
    options = parse(arguments)
    with contextlib.ExitStack() as stack:
        if options.url:
            url = options.url.rstrip("/")
            targets = [Target(urlsplit(url).netloc, url, options.model or first_model(url))]
        else:
            sizes = ["--slots", str(options.slots), "--slot-tokens", str(options.slot_tokens)]
            url, _ = stack.enter_context(own_server([*sizes, *options.serve]))
            targets = [Target("zerolayer", url, options.model or first_model(url))]
        for peer in options.peer:
            name, _, url = peer.partition("=")
            targets.append(Target(name, url.rstrip("/"), first_model(url.rstrip("/"))))
        bench = Bench(options)
        for number in range(1, options.rounds + 1):
            for target in targets:
                bench.round(number, target)
    rows = median_rows(bench.rows)
    print(table(rows))
    if lines := ratios(rows):
        print(f"\n{lines}")
    if options.json:
        machine = {
            "cpus": sorted(os.sched_getaffinity(0)),
            "system": platform.platform(),
            "python": platform.python_version(),
        }
        used = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        result = {"version": 1, "machine": machine, "options": used, "medians": rows, "rounds": bench.rows}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
