#!/usr/bin/env python3
"""What load does to those who are admitted, how fast the others are refused, and whether bookings are kept.

Pulses: 64 requests at once, again when all are answered. Poisson: arrivals at 0.5, 0.9 and 1.5 of the capacity, which
is the best closed-loop rate with as many workers as slots. Clients behave as stock SDKs do: they come back when they
are told to, at most twice. A stub that refuses everything is the control for refusals.

    python bench/zero_queue.py                              the bundled model
    python bench/zero_queue.py --engine mock:step_us=5000 --retries 30000
    python bench/zero_queue.py --peer vllm=http://127.0.0.1:8100 --json-out result.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from figures import percentile, token_times
from lean_client import LoadLoop, Record
from own_server import free_port, own_server
from serve import Target, Work, arrivals, first_model

EARLY_MS = 5.0
ATTEMPTS = 3  # a stock client's: one and two retries
SIGN = b"x-stainless-retry-count: 0\r\n"  # what such a client sends; the load loop counts it up


class Bench:
    """Runs the same work against one server after the other; every run becomes a row."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._work = Work(options.prompt_words, options.output_tokens, 0.0, options.seed)
        self.rows: list[dict[str, Any]] = []

    def measure(self, target: Target) -> None:
        """Idle latency, capacity, pulses, Poisson."""
        options = self._options
        self._closed(target, "warm-up", 1, 2)
        idle = percentile(_whole(self._closed(target, "idle", 1, 8)), 50) or 0.0
        crowd = self._closed(target, "capacity", options.slots, 6 * options.slots)
        span = max(record.end_ns for record in crowd) - min(record.sent_ns for record in crowd)
        capacity = len(crowd) / span * 1e9
        beside = percentile(_whole(crowd), 50) or 0.0
        records = []
        for number in range(options.pulses):
            records += self._open(target, f"pulse {number}", [0.0] * options.pulse)
        self._keep(target, f"pulses of {options.pulse}", records, idle, beside, capacity)
        for share in (0.5, 0.9, 1.5):
            offsets = arrivals(random.Random(f"{options.seed}/{share}"), share * capacity, options.duration)
            self._keep(target, f"poisson {share}", self._open(target, f"p {share}", offsets), idle, beside, capacity)

    def until_retries(self, target: Target, count: int) -> None:
        """Overload until ``count`` booked retries were made."""
        crowd = self._closed(target, "capacity", self._options.slots, 6 * self._options.slots)
        span = max(record.end_ns for record in crowd) - min(record.sent_ns for record in crowd)
        capacity, records, number = len(crowd) / span * 1e9, [], 0
        while sum(len(record.attempts) for record in records) < count:
            offsets = arrivals(random.Random(f"retries {number}"), 1.3 * capacity, self._options.duration)
            records += self._open(target, f"retries {number}", offsets)
            number += 1
        self._keep(target, f"{count} retries", records, 0.0, 0.0, capacity)

    def refusals(self, control: str, pulses: int) -> None:
        """The same pulses against the stub."""
        target, records = Target("control", control, "none"), []
        for number in range(pulses):
            records += self._open(target, f"pulse {number}", [0.0] * self._options.pulse, retry=False)
        self._keep(target, f"pulses of {self._options.pulse}", records, 0.0, 0.0, 0.0)

    def _closed(self, target: Target, label: str, workers: int, count: int) -> list[Record]:
        with _loop(target.url) as loop:
            return loop.closed(self._payloads(target, label, count), workers)

    def _open(self, target: Target, label: str, offsets: Sequence[float], *, retry: bool = True) -> list[Record]:
        with _loop(target.url, retry=retry) as loop:
            return loop.open(self._payloads(target, label, len(offsets)), offsets)

    def _payloads(self, target: Target, label: str, count: int) -> list[bytes]:
        plain = self._work.payloads(target, label, count)
        return [payload.replace(b"\r\n", b"\r\n" + SIGN, 1) for payload in plain]

    def _keep(
        self, target: Target, run: str, records: list[Record], idle: float, beside: float, capacity: float
    ) -> None:
        row = {"server": target.name, "run": run} | figures(records, idle, beside, capacity, self._options.grace_ms)
        self.rows.append(row)
        print(f"\n{target.name}, {run}")
        for name, value in row.items():
            if name not in ("server", "run") and value is not None:
                print(f"  {name:34} {value if isinstance(value, int | str | list | dict) else f'{value:.3f}'}")


def figures(records: Sequence[Record], idle: float, beside: float, capacity: float, grace_ms: float) -> dict[str, Any]:
    """One run. Times of admitted requests run from the send of the attempt that was admitted; milliseconds."""
    served = [record for record in records if record.ok]
    whole = _whole(served)
    first = [(token_times(record)[0] - _began(record)) / 1e6 for record in served if record.arrivals]
    refused = [(answered - sent) / 1e6 for record in records for sent, answered, _ in record.attempts]
    start, last = min(record.intended_ns for record in records), max(record.intended_ns for record in records)
    span = max(record.end_ns for record in records) - start
    arriving = sum(record.end_ns <= last for record in served) / (last - start) * 1e9 if last > start else 0.0
    p50, p99 = percentile(whole, 50), percentile(whole, 99)
    late = [record for record in records if record.status == 504 or record.error == "error event"]
    return {
        "offered": len(records),
        "served at once": sum(not record.attempts for record in served),
        "served after a refusal": sum(bool(record.attempts) for record in served),
        "refused for good": sum(record.status in (422, 429, 503) for record in records),
        "admitted and late": len(late),
        "other errors": sum(not record.ok and record.status not in (422, 429, 503, 504) for record in records),
        "served a second": len(served) / span * 1e9,
        "of capacity, while they arrive": arriving / capacity if capacity and arriving else None,
        "E2E p50 ms": p50,
        "E2E p99 ms": p99,
        "P99/P50": p99 / p50 if p50 and p99 else None,
        "P50/S0": p50 / idle if p50 and idle else None,
        "P99 / P50 among slots": p99 / beside if p99 and beside else None,
        "TTFT p50 ms": percentile(first, 50),
        "TTFT p99 ms": percentile(first, 99),
        "TTFT standard deviation ms": statistics.pstdev(first) if first else None,
        "rank correlation arrival, TTFT": rank_correlation(served),
        "refusal p50 ms": percentile(refused, 50),
        "refusal p99 ms": percentile(refused, 99),
        **bookings(records, grace_ms),
    }


def bookings(records: Sequence[Record], grace_ms: float) -> dict[str, Any]:
    """What became of attempts that came at the time they were told."""
    within = outside = kept = kept_outside = 0
    lateness = []
    for record in records:
        ends = [*[(sent, False) for sent, _, _ in record.attempts[1:]], (_began(record), record.ok)]
        if not record.attempts or (len(ends) > len(record.attempts)):
            continue
        for (_, answered, told_ms), (sent, served) in zip(record.attempts, ends, strict=False):
            if told_ms < 0 or sent <= answered:
                continue
            late_ms = (sent - answered) / 1e6 - told_ms
            lateness.append(late_ms)
            if -EARLY_MS <= late_ms <= grace_ms:
                within, kept = within + 1, kept + served
            else:
                outside, kept_outside = outside + 1, kept_outside + served
    if not lateness:
        return {}
    return {
        "retries within the window": within,
        "of them served": kept,
        "retries outside": outside,
        "of these served": kept_outside,
        "lateness p50, p99, max ms": [round(percentile(lateness, q) or 0.0, 2) for q in (50, 99, 100)],
    }


def rank_correlation(records: Sequence[Record]) -> float | None:
    """Spearman's, of the order of sending and the order of first tokens."""
    pairs = [(_began(record), token_times(record)[0]) for record in records if record.arrivals]
    if len(pairs) < 3:
        return None
    ranks = [{i: rank for rank, i in enumerate(sorted(range(len(pairs)), key=lambda i: pairs[i][k]))} for k in (0, 1)]
    squares = sum((ranks[0][i] - ranks[1][i]) ** 2 for i in range(len(pairs)))
    return 1 - 6 * squares / (len(pairs) * (len(pairs) ** 2 - 1))


def _began(record: Record) -> int:
    """When the last attempt was sent."""
    return record.last_sent_ns or record.sent_ns


def _whole(records: Sequence[Record]) -> list[float]:
    return [(record.end_ns - _began(record)) / 1e6 for record in records if record.ok]


@contextlib.contextmanager
def _loop(url: str, *, retry: bool = False) -> Iterator[LoadLoop]:
    loop = LoadLoop(url, retry=retry, attempts=ATTEMPTS, clock_ns=time.monotonic_ns)
    gc.collect()
    gc.disable()  # its pauses would be the server's latency
    try:
        yield loop
    finally:
        gc.enable()
        loop.close()


@contextlib.contextmanager
def _control() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("refuse_all.py")), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--engine", default="native", help="of the server started here: native or mock:step_us=N")
    add("--peer", action="append", default=[], metavar="NAME=URL", help="another server to measure; repeatable")
    add("--slots", type=int, default=16)
    add("--slot-tokens", type=int, default=512)
    add("--pulse", type=int, default=64, help="requests at once (default 64)")
    add("--pulses", type=int, default=5)
    add("--duration", type=float, default=20.0, help="seconds of Poisson arrivals (default 20)")
    add("--retries", type=int, default=0, help="instead: overload until so many retries were made")
    add("--prompt-words", type=int, default=127)
    add("--output-tokens", type=int, default=64)
    add("--grace-ms", type=float, default=250.0, help="of the server's contract (default 250)")
    add("--seed", type=int, default=1)
    add("--json-out", type=Path, help="write every figure")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(arguments)
    bench = Bench(options)
    sizes = ["--slots", str(options.slots), "--slot-tokens", str(options.slot_tokens), "--engine", options.engine]
    with own_server(sizes) as (url, _):
        target = Target("zerolayer", url, first_model(url))
        if options.retries:
            bench.until_retries(target, options.retries)
        else:
            bench.measure(target)
    if not options.retries:
        with _control() as url:
            bench.refusals(url, options.pulses)
    for peer in options.peer:
        name, _, url = peer.partition("=")
        bench.measure(Target(name, url.rstrip("/"), first_model(url.rstrip("/"))))
    if options.json_out:
        used = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        options.json_out.write_text(json.dumps({"version": 1, "options": used, "rows": bench.rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
