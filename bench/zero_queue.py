#!/usr/bin/env python3
"""What load does to those who are admitted, how fast the others are refused, and whether bookings are kept.

Pulses: 64 requests at once, again when all are answered, and before each a lone request. Poisson: arrivals at 0.5, 0.9
and 1.5 of the capacity, which is the closed-loop rate with as many workers as slots; at 1.5 it is measured before and
after each of several rounds. Clients behave as stock SDKs do: they come back when they are told to, at most twice.
Times run from before a client connects until it has the last byte; all of a pulse connect first, then all send.

A stub that refuses everything is the control for refusals: the same client and pulses, before each pulse of the server
while that rests, and once more while it computes for as many other clients as it has slots. The quicker one counts.

    python bench/zero_queue.py                              the bundled model
    python bench/zero_queue.py --retries 30000              the mock engine, 16 tokens a request
    python bench/zero_queue.py --slower --peers bench/peers.toml --only "vLLM, both cores" --json result.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from in_process import show
from lean_client import LoadLoop, Record
from msgspec.structs import replace
from own_server import free_port, own_server
from peers import read_peers, started
from queue_causes import Steps, late, steal_ms, strayed
from queue_figures import CONTROL, HALVED, OWN, STOLEN, Alone, alone_of, beside, figures, steady_rate, verdicts
from queue_pulses import Pulses
from queue_rounds import Rounds
from serve import Target, Work, arrivals, first_model

ATTEMPTS = 3  # a stock client's: one and two retries
FIRST = b"x-stainless-retry-count: 0\r\n"  # what such a client sends; the load loop counts it up
LAST = b"x-stainless-retry-count: 2\r\n"  # it will not come again: nothing is booked for it
CAUSES = 40  # that are printed of one run; all are in the JSON


class Bench:
    """Runs the same work against one server after the other; every run becomes a row."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._work = Work(options.prompt_words, options.output_tokens, 0.0, options.seed)
        self.rows: list[dict[str, Any]] = []
        self._steps = Steps(None)
        self._steal_ms = steal_ms()

    def measure(self, target: Target, pid: int | None = None, control: str | None = None) -> None:
        """Idle latency, capacity, pulses, Poisson. ``pid``: of a server of our own; ``control``: the stub's URL."""
        self._steps = Steps(pid)
        options, slots = self._options, self._options.slots
        self._closed(target, "warm-up", 1, 2)
        lone, crowds = self._closed(target, "idle", 1, 8), [self._closed(target, "capacity", slots, 6 * slots)]
        pulses, refused = Pulses(), Pulses()
        for number in range(options.pulses):
            if control is not None:
                refused.add(partial(self._refused, control, number))
            lone += self._closed(target, f"before {number}", 1, 1)
            pulses.add(partial(self._open, target, f"pulse {number}", [0.0] * options.pulse))
        crowds.append(self._closed(target, "capacity again", slots, 6 * slots))
        alone = alone_of(lone, crowds, slots)
        if control is not None:
            self._keep(CONTROL, f"pulses of {options.pulse}", refused.records, Alone(), refused.figures(0.0))
        found = pulses.figures(alone.first) | ({} if control is None else pulses.beside(refused))
        self._keep(target.name, f"pulses of {options.pulse}", pulses.records, alone, found)
        for share in (0.5, 0.9):
            offsets = arrivals(random.Random(f"{options.seed}/{share}"), share * alone.capacity, options.duration)
            self._keep(target.name, f"poisson {share}", self._open(target, f"p {share}", offsets), alone)
        self._overload(target, alone)

    def _overload(self, target: Target, alone: Alone) -> None:
        """More than the capacity, which is measured anew around each round."""
        options, capacity = self._options, self._capacity(target, "before overload")
        booked, bare = Rounds(), Rounds()
        for number in range(options.rounds):
            offsets = arrivals(random.Random(f"{options.seed}/1.5/{number}"), 1.5 * capacity, options.duration)
            for rounds, retry, sign in ((booked, True, FIRST), (bare, False, LAST)):
                label, stolen = f"overload {number} {retry}", steal_ms()
                records = self._open(target, label, offsets, retry=retry, sign=sign)
                stolen = steal_ms() - stolen
                before, capacity = capacity, self._capacity(target, f"after {label}")
                rounds.add(records, replace(alone, capacity=(before + capacity) / 2), stolen)
        self._keep(target.name, "poisson 1.5", booked.records, alone, booked.figures())
        self._keep(target.name, "poisson 1.5, nothing booked", bare.records, alone, bare.figures())

    def _capacity(self, target: Target, label: str) -> float:
        """Requests a second of as many workers as slots."""
        slots = self._options.slots
        return steady_rate(self._closed(target, label, slots, 6 * slots), slots)

    def until_retries(self, target: Target, count: int, pid: int) -> None:
        """Overload until ``count`` booked retries were made."""
        self._steps = Steps(pid)
        options, slots = self._options, self._options.slots
        lone, crowd = self._closed(target, "idle", 1, 8), self._closed(target, "capacity", slots, 6 * slots)
        alone = alone_of(lone, [crowd], slots)
        records: list[Record] = []
        made, number, begun = 0, 0, time.monotonic()
        while made < count:
            offsets = arrivals(random.Random(f"retries {number}"), 1.3 * alone.capacity, options.duration)
            new = self._open(target, f"retries {number}", offsets)
            records, number = records + new, number + 1
            made += sum(told >= 0 for record in new for _, _, told in record.attempts)
            left_s = (count - made) * (time.monotonic() - begun) / max(1, made)
            print(f"  {made} of {count} booked retries, {max(0.0, left_s):.0f} s left", file=sys.stderr, flush=True)
        self._keep(target.name, f"{count} retries", records, alone)

    def refusals(self, control: str) -> None:
        """The same pulses against the stub, whatever runs beside it."""
        refused = Pulses()
        for number in range(self._options.pulses):
            refused.add(partial(self._refused, control, number))
        run = f"pulses of {self._options.pulse}, beside a busy engine"
        self._keep(CONTROL, run, refused.records, Alone(), refused.figures(0.0))

    def _refused(self, control: str, number: int) -> list[Record]:
        target = Target(CONTROL, control, "none")
        return self._open(target, f"pulse {number}", [0.0] * self._options.pulse, retry=False)

    def _closed(self, target: Target, label: str, workers: int, count: int) -> list[Record]:
        with _loop(target.url, retry=True) as loop:
            records = loop.closed(self._payloads(target, label, count), workers)
        served = [record for record in records if record.ok]
        if len(served) < count // 2:
            raise SystemExit(f"{target.name} served {len(served)} of {count} requests ({label}): is the machine busy?")
        return served

    def _open(
        self, target: Target, label: str, offsets: Sequence[float], *, retry: bool = True, sign: bytes = FIRST
    ) -> list[Record]:
        with _loop(target.url, retry=retry, ended=self._steps.seen) as loop:
            return loop.open(self._payloads(target, label, len(offsets), sign), offsets)

    def _payloads(self, target: Target, label: str, count: int, sign: bytes = FIRST) -> list[bytes]:
        plain = self._work.payloads(target, label, count)
        return [payload.replace(b"\r\n", b"\r\n" + sign, 1) for payload in plain]

    def _keep(
        self, server: str, run: str, records: list[Record], alone: Alone, more: Mapping[str, Any] | None = None
    ) -> None:
        row = {"server": server, "run": run} | figures(records, alone, self._options.grace_ms)
        stolen, self._steal_ms = steal_ms() - self._steal_ms, steal_ms()
        row |= more or {STOLEN: stolen}
        causes = [*late(records, self._steps), *strayed(records, self._options.grace_ms)]
        print(f"\n{server}, {run}")
        for name, value in row.items():
            if name not in ("server", "run") and value is not None:
                print(f"  {name:40} {value if isinstance(value, int | str | list | dict) else f'{value:.3f}'}")
        for cause in causes[:CAUSES]:
            print(f"  - {cause}")
        if len(causes) > CAUSES:
            print(f"  - and {len(causes) - CAUSES} more")
        self.rows.append(row | {"causes": causes})


def keep_busy(url: str, options: argparse.Namespace) -> None:
    """As many clients as slots, each with one request after the other, until the process is ended."""
    work = Work(options.prompt_words, options.output_tokens, 0.0, options.seed)
    target = Target("busy", url, first_model(url))
    with _loop(url) as loop:
        for number in itertools.count():
            loop.closed(work.payloads(target, f"busy {number}", 64 * options.slots), options.slots)


@contextlib.contextmanager
def busy(url: str, options: argparse.Namespace) -> Iterator[None]:
    """The server at ``url`` computes in all slots meanwhile."""
    sizes = {"slots": options.slots, "prompt-words": options.prompt_words, "output-tokens": options.output_tokens}
    arguments = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    process = subprocess.Popen([sys.executable, __file__, "--keep-busy", url, *arguments])
    try:
        time.sleep(3)  # until all slots run
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def slowed() -> Iterator[None]:
    """Something else takes half of every core."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextlib.contextmanager
def _loop(url: str, *, retry: bool = False, ended: Callable[[Record], None] | None = None) -> Iterator[LoadLoop]:
    loop = LoadLoop(url, retry=retry, attempts=ATTEMPTS, clock_ns=time.monotonic_ns, ended=ended)
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
    add("--engine", help="of the server started here: native (default) or mock:step_us=N (default with --retries)")
    add("--peer", action="append", default=[], metavar="NAME=URL", help="another server to measure; repeatable")
    add("--peers", type=Path, metavar="FILE", help="start and measure these too, one by one; see bench/peers.toml")
    add("--only", action="append", metavar="NAME", help="of the peers in that file; repeatable")
    add("--start-s", type=float, default=600.0, help="how long a peer may take to start (default 600)")
    add("--keep-busy", metavar="URL", help=argparse.SUPPRESS)  # what ``busy`` runs
    add("--slots", type=int, default=16)
    add("--slot-tokens", type=int, default=512)
    add("--pulse", type=int, default=64, help="requests at once (default 64)")
    add("--pulses", type=int, default=12)
    add("--duration", type=float, default=20.0, help="seconds of Poisson arrivals (default 20)")
    add("--rounds", type=int, default=3, help="of 1.5 times the capacity, with and without bookings (default 3)")
    add("--retries", type=int, default=0, help="instead: overload until so many retries were made")
    add("--prompt-words", type=int, default=127)
    add("--output-tokens", type=int, help="default 64; 16 with --retries")
    add("--grace-ms", type=float, default=250.0, help="of the server's contract (default 250)")
    add("--seed", type=int, default=1)
    add("--slower", action="store_true", help="once more while something else takes half of every core")
    add("--json", "--json-out", type=Path, metavar="FILE", help="write every figure")
    given = parser.parse_args(arguments)
    given.engine = given.engine or ("mock:step_us=5000" if given.retries else "native")
    given.output_tokens = given.output_tokens or (16 if given.retries else 64)
    return given


def _measure_own(bench: Bench, options: argparse.Namespace) -> None:
    sizes = ["--slots", str(options.slots), "--slot-tokens", str(options.slot_tokens), "--engine", options.engine]
    with own_server(sizes) as (url, pid):
        target = Target(OWN, url, first_model(url))
        if options.retries:
            bench.until_retries(target, options.retries, pid)
            return
        with _control() as control:
            bench.measure(target, pid, control)
            with busy(url, options):
                bench.refusals(control)
    if options.slower:
        with slowed(), own_server(sizes) as (url, pid):
            bench.measure(Target(HALVED, url, first_model(url)), pid)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(arguments)
    if options.keep_busy:
        keep_busy(options.keep_busy, options)
    bench = Bench(options)
    peers = [] if options.peers is None else read_peers(options.peers)
    peers = [peer for peer in peers if options.only is None or peer.name in options.only]
    runs = 1 + options.slower + len(options.peer) + len(peers)
    poisson = (3 + 2.5 * options.rounds) * options.duration
    about = options.retries / 80 if options.retries else runs * (60 + 8 * options.pulses + poisson)
    print(f"This takes about {1 + about / 60:.0f} minutes.", file=sys.stderr)
    _measure_own(bench, options)
    for peer in peers:
        with started(peer, options.start_s) as (url, _, _):
            bench.measure(Target(peer.name, url, first_model(url)))
    for name, _, url in (peer.partition("=") for peer in options.peer):
        bench.measure(Target(name, url.rstrip("/"), first_model(url.rstrip("/"))))
    judged = verdicts(bench.rows, options.slots)
    print()
    show({"figure": "figure", "measured": "measured:.4g", "limit": "limit", "": "met"}, judged)
    compared = beside(bench.rows)
    if compared:
        print()
        show({"run": "run", "ours": "ours:.4g", "theirs": "theirs:.4g", "of": "of"}, compared)
    if options.json is not None:
        used = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        document = {"version": 1, "options": used, "rows": bench.rows, "verdicts": judged, "beside": compared}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
