#!/usr/bin/env python3
"""What the door costs: server CPU for each request and each streamed token, beside other people's doors doing the same.

    python bench/front.py                      with every peer that is installed; four minutes on two quiet cores
    python bench/front.py --peer none          this server alone
    python bench/front.py --only tokens        one part: unary, tokens, gaps, decode, live

Servers are pinned to one core and the client to another. Costs are CPU time from /proc, so that a busy machine
matters less than it would for rates. All servers are measured in turn, three times, each row in five runs; it shows the
least of all, and the least that it was above the bare system calls of the same round, which is what a machine that is
not quiet can tell.
A peer that is not installed is left out with the command that installs it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import front_glue
import front_waits
from figures import percentile
from front_client import Http1Load, Http2Load, SseLoad, blocks
from front_requests import (
    BODY_BYTES,
    CALL,
    POST,
    VALUES,
    chat_body,
    completion,
    framed,
    http1_requests,
    ids,
    post,
    schema_request,
    timeouts,
)
from front_rows import Rows
from in_process import machine
from own_server import own_server

HERE = Path(__file__).parent
FLOORS = {"floor": "sockets", "uvloop": "uvloop"}  # what system calls alone cost, and what they cost on the loop
PEERS = {"uvicorn": "uvicorn[standard]", "fastapi": "fastapi uvicorn[standard]", "grpcio": "grpcio protobuf"}
_STREAMS = 128
_STEP_US = 5000
_RUNS = 5  # of a row in a round
_FEWER = 6  # times the requests of the live part, without the short slice


class Process:
    """A server under test: its port, and how much CPU it has used."""

    def __init__(self, name: str, port: int, pid: int, engine_thread: int = 0, *, loop_only: bool = False) -> None:
        self.name = name
        self.port = port
        self._pid = pid
        self._engine_thread = engine_thread
        self._loop_only = loop_only

    def cpu_ns(self) -> int:
        """CPU time of all threads but the one that stands for the engine, or of the loop's thread alone."""
        tasks = Path(f"/proc/{self._pid}/task")
        threads = [self._pid] if self._loop_only else [int(task.name) for task in tasks.iterdir()]
        return sum(
            int((tasks / str(thread) / "schedstat").read_text().split()[0])
            for thread in threads
            if thread != self._engine_thread
        )


class Bench:
    """Collects rows; every row is one server doing one thing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._count = max(1, options.requests // options.rounds)
        self.rows = Rows()
        self.waits: dict[str, Any] = {}  # of the loop, by its time slice

    def unary(self, server: Process) -> None:
        """1 KB in, 200 B out, 16 in flight."""
        count = self._count
        if server.name != "grpcio":
            constant, changing = http1_requests(1), http1_requests(VALUES)
            self._requests(server, "HTTP/1.1, 16 connections", lambda: Http1Load(server.port, 16, constant), count)
            self._requests(server, "HTTP/1.1, changing id", lambda: Http1Load(server.port, 16, changing), count)
        body = b"x" * BODY_BYTES
        if server.name == "zerolayer":
            post, posts = blocks(POST), blocks(POST, "x-request-id", ids())
            self._requests(server, "HTTP/2, 1 connection", lambda: Http2Load(server.port, 1, 16, post, body), count)
            self._requests(server, "HTTP/2, 16 connections", lambda: Http2Load(server.port, 16, 1, post, body), count)
            self._requests(server, "HTTP/2, changing id", lambda: Http2Load(server.port, 1, 16, posts, body), count)
        if server.name in ("zerolayer", "grpcio"):
            message = framed(schema_request(16))
            call, calls = blocks(CALL), blocks(CALL, "grpc-timeout", timeouts())
            self._requests(server, "gRPC, 1 connection", lambda: Http2Load(server.port, 1, 16, call, message), count)
            self._requests(server, "gRPC, 16 connections", lambda: Http2Load(server.port, 16, 1, call, message), count)
            self._requests(
                server, "gRPC, changing timeout", lambda: Http2Load(server.port, 1, 16, calls, message), count
            )

    def floor(self, server: Process) -> None:
        """The same bytes in and out, with nothing between them."""
        request = http1_requests(1)
        self._requests(server, "HTTP/1.1, 16 connections", lambda: Http1Load(server.port, 16, request), self._count)

    def refusals(self, server: Process) -> None:
        """A real request, decoded, and a prepared refusal."""
        chat = [post("/v1/chat/completions", chat_body())]
        schema = [post("/v1/generate", schema_request(16), b"application/x-protobuf")]
        for name, requests in (("JSON", chat), ("schema", schema)):
            load = partial(Http1Load, server.port, 16, requests)
            self._requests(server, f"refusal, HTTP/1.1, {name}", load, self._count, b"429")
        message, path = framed(schema_request(16)), ("/zerolayer.v1.Inference/Generate",)
        call = blocks([(name, path[0] if name == ":path" else value) for name, value in CALL])
        self._requests(server, "refusal, gRPC", lambda: Http2Load(server.port, 1, 16, call, message), self._count)

    def _requests(self, server: Process, what: str, make: Callable[[], Any], count: int, *status: bytes) -> None:
        """``status``: of the replies, where it is not 200."""
        count = count // 8 if server.name in ("fastapi", "grpcio") else count
        with contextlib.closing(make()) as load:
            load.run(2000, *status)
            self.keep(server, what, least_us(server, lambda part: load.run(part, *status), count))

    def tokens(self, server: Process, *, sse: bool, path: str, body: bytes, call: str = "") -> None:
        """128 streams at one token a step: between the time all run and the time the first ends."""
        tokens = self._options.tokens
        if sse:
            load: Any = SseLoad(server.port, _STREAMS, post(path, body))
            what = f"token, SSE, {_STREAMS} connections"
        else:
            fields = [(name, call if name == ":path" else value) for name, value in CALL]
            load = Http2Load(server.port, 8, _STREAMS // 8, blocks(fields), framed(body))
            load.start()
            what = f"token, gRPC, {_STREAMS} streams on 8 connections"
        with contextlib.closing(load):
            # Prompts are taken one a step: after so many steps the last stream begins, and half of the tokens are left.
            load.until(_STREAMS * (_STREAMS // 2 + 40))
            left = _STREAMS * (tokens - _STREAMS // 2 - 80) - load.tokens

            def read(count: int) -> int:
                begun = load.tokens
                load.until(begun + count)
                return load.tokens - begun

            self.keep(server, what, least_us(server, read, left))

    def gaps(self, server: Process, model: str) -> None:
        """One stream alone: each token comes by itself, a step after the one before."""
        tokens = 600
        load = SseLoad(server.port, 1, post("/v1/completions", completion(model, tokens)))
        with contextlib.closing(load):
            load.until(tokens - 50)
        reads = load.reads[50:]
        gaps = [(later - sooner) / 1e6 for (sooner, _), (later, _) in itertools.pairwise(reads)]
        together = sum(count > 1 for _, count in reads) / len(reads)
        for q in (1, 50, 99):
            self.keep(
                server, f"gap between tokens, P{q}, of a step of {_STEP_US / 1000:g} ms", percentile(gaps, q), "ms"
            )
        self.keep(server, "reads that brought more than one token", 100 * together, "%")

    def keep(self, server: Process, what: str, value: float | None, unit: str = "us") -> None:
        self.rows.keep(server.name, what, value, unit)
        print(f"  {server.name:10} {what:52} {value if value is not None else float('nan'):9.2f} {unit}", flush=True)


def least_us(server: Process, run: Callable[[int], int], count: int) -> float:
    """CPU for one of about ``count``, in the cheapest of some runs in a row: others on the machine make any dearer.

    ``run`` makes as many as it is told and tells how many it made.
    """
    found = list[float]()
    for _ in range(_RUNS):
        before = server.cpu_ns()
        made = run(max(1, count // _RUNS))
        found.append((server.cpu_ns() - before) / made / 1000)
    return min(found)


@contextlib.contextmanager
def started(name: str, command: Sequence[str], core: int | None) -> Iterator[Process]:
    """A bench server whose first line says its port and its engine's thread."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE)
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if len(words) != 2:
            raise SystemExit(f"{name} did not start")
        yield Process(name, int(words[0]), process.pid, int(words[1]))
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def whole(core: int | None) -> Iterator[Process]:
    """``zerolayer serve`` with the mock engine."""
    shape = ["--slots", str(_STREAMS), "--slot-tokens", "1024", "--engine", f"mock:step_us={_STEP_US}"]
    with _patient() as contract, own_server([*shape, "--contract", contract]) as (url, pid):
        if core is not None:
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})
        yield Process("zerolayer", int(url.rpartition(":")[2]), pid, loop_only=True)


@contextlib.contextmanager
def _patient() -> Iterator[str]:
    """A contract that refuses nobody for want of time: the streams are the load, and a busy machine may be slow."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("[deadline]\ndefault_ms = 3600000\nfirst_token_ms = 3600000\nper_token_ms = 60000\n")
        file.flush()
        yield file.name


def measure_unary(bench: Bench, peers: Sequence[str], core: int | None) -> None:
    """Own door first."""
    with started("zerolayer", [str(HERE / "front_server.py")], core) as server:
        bench.unary(server)
        bench.refusals(server)
    for name, kind in FLOORS.items():
        with started(name, [str(HERE / "front_floor.py"), kind], core) as server:
            bench.floor(server)
    for peer in peers:
        with started(peer, [str(HERE / "front_peers.py"), peer], core) as server:
            bench.unary(server)


def measure_tokens(bench: Bench, peers: Sequence[str], core: int | None, tokens: int) -> None:
    """The whole server with the mock engine against peers with a ticking thread."""
    chat = completion("smollm2", tokens)
    with whole(core) as server:
        bench.tokens(server, sse=True, path="/v1/completions", body=chat)
        time.sleep(1)
        call = "/zerolayer.v1.Inference/Generate"
        bench.tokens(server, sse=False, path="", body=schema_request(tokens, ids=3), call=call)
    for name, kind in FLOORS.items():
        with started(name, [str(HERE / "front_floor.py"), kind], core) as server:
            bench.tokens(server, sse=True, path="/stream", body=chat)
    for peer in peers:
        with started(peer, [str(HERE / "front_peers.py"), peer], core) as server:
            body = schema_request(tokens, ids=3) if peer == "grpcio" else chat
            bench.tokens(server, sse=peer != "grpcio", path="/stream", body=body, call="/bench.Door/Stream")


def measure_gaps(bench: Bench) -> None:
    """Nothing is pinned: this is about the client's view."""
    with own_server(["--slots", "4", "--slot-tokens", "1024", "--engine", f"mock:step_us={_STEP_US}"]) as (url, pid):
        bench.gaps(Process("zerolayer", int(url.rpartition(":")[2]), pid), "smollm2")


def measure_decode(bench: Bench) -> None:
    """In this process; the server's own code."""
    import front_decode

    here = Process("in process", 0, os.getpid())
    for what, us in (front_decode.decoding() | front_decode.tokenising()).items():
        bench.keep(here, what, us)


def measure_live(bench: Bench, requests: int) -> None:
    """The bundled model, 32 at once, on all cores. A P99 wants many steps; without the short slice there are fewer."""
    for short_slice, count in ((True, requests), (False, requests // _FEWER)):
        found = front_glue.measure(count, short_slice=short_slice)
        server = Process("zerolayer", 0, os.getpid())
        for what, name in (
            ("loop waits after a step", "loop"),
            ("step thread waits after a step", "step"),
            ("from a step to the next", "border"),
            ("from a step's end to its tokens", "held"),
        ):
            for q in (50, 99, 100):
                bench.keep(server, f"{what}, P{q}, with {found['slice'][:28]}", found[f"{name}_p{q}"], "ms")
        bench.keep(server, f"glue at concurrency 32, with {found['slice'][:28]}", 100 * found["glue"], "%")
        print("\n".join(front_waits.lines(found["waits"], found["steps"])), flush=True)
        bench.waits[found["slice"]] = {"steps": found["steps"], "long": found["waits"]}


def installed(names: Sequence[str]) -> list[str]:
    """The peers of ``names`` that can be imported; the others are named with what installs them."""
    found = []
    for name in names:
        module = {"grpcio": "grpc"}.get(name, name)
        if importlib.util.find_spec(module) is None:
            print(f"{name} is left out; to measure it: {sys.executable} -m pip install {PEERS[name]}")
        else:
            found.append(name)
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", action="append", choices=PARTS, help="a part; repeatable; all without it")
    add("--peer", action="append", choices=[*PEERS, "none"], help="who else is measured; all that are installed")
    add("--rounds", type=int, default=3, help="of all servers in turn (default 3)")
    add(
        "--requests",
        type=int,
        default=40_000,
        help="timed for each row in all rounds (default 40000; slow peers an eighth)",
    )
    add("--tokens", type=int, default=400, help="of each of the 128 streams (default 400)")
    add("--live-requests", type=int, default=192, help="on the bundled model; without the short slice a sixth of them")
    add("--json", "--json-out", type=Path, help="write every figure")
    return parser.parse_args(arguments)


PARTS = {"unary": 45, "tokens": 75, "gaps": 8, "decode": 15, "live": 110}
"""And the seconds that each takes, with all peers and three rounds."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(arguments)
    parts = options.only or list(PARTS)
    peers = installed([peer for peer in options.peer or PEERS if peer != "none"])
    cores = sorted(os.sched_getaffinity(0))
    core = cores[0] if len(cores) > 1 else None
    before = machine()
    bench = Bench(options)
    print(f"about {sum(PARTS[part] for part in parts)} s on a quiet machine", flush=True)
    if core is not None:
        os.sched_setaffinity(0, set(cores[1:]))
    for number in range(options.rounds):
        if {"unary", "tokens"} & set(parts):
            print(f"round {number + 1} of {options.rounds}", flush=True)
        if "unary" in parts:
            measure_unary(bench, peers, core)
        if "tokens" in parts:
            measure_tokens(bench, peers, core, options.tokens)
    os.sched_setaffinity(0, set(cores))
    if "gaps" in parts:
        measure_gaps(bench)
    if "decode" in parts:
        measure_decode(bench)
    if "live" in parts:
        measure_live(bench, options.live_requests)
    print("\n".join(["", *bench.rows.lines()]))
    if options.json:
        used = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        result = {"version": 2, "bench": "front", **before, "options": used, "rows": bench.rows.as_json()}
        result |= {"waits": bench.waits}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
