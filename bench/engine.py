#!/usr/bin/env python3
"""The CPU engine against what this machine can do at all: step times against the time to read what a step reads,
their spread against two loops as long on the same threads, the server against the same engine without one. About
10 minutes.

One loop spins: it shows when the threads have no core. The other multiplies as a step does, weights that stay in the
cache: it shows, too, when the core's multipliers are shared with somebody else's processor thread. What a prompt's
products alone would take is told by the same loop.

    python bench/engine.py --json result.json
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from figures import percentile
from in_process import loaded, machine, options, read_prompt, show, write
from lean_client import LoadLoop
from own_server import free_port, own_server
from peers import cpu_s, resident_mb
from serve import Target, Work, first_model

from zerolayer import contract
from zerolayer.model.engine import Engine, Generation, StepPlan
from zerolayer.model.letters import StepReport
from zerolayer.model.load import LoadedModel
from zerolayer.model.native_engine import NativeEngine
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

SLOTS: Final = 32
ROUNDS: Final = 4  # of the server, and of the engine without it
PROMPT, OUTPUT = 128, 64
ROWS, PANEL = 12, 32  # of a turn of products_ns
BLOCK = 8  # steps in a row, then as many turns of each loop
CONTEXT: Final = PROMPT + OUTPUT // 2  # of the average decode step
SAMPLING: Final = Sampling(temperature=0.7)
SIZES: Final = {"slots": str(SLOTS), "slot_tokens": "512"}

STEPS = {
    "weights": "weights",
    "slots": "slots",
    "step p50 ms": "step_ms:.2f",
    "read once ms": "floor_ms:.2f",
    "x": "over_floor:.2f",
    "p99/p50": "spread:.3f",
    "of a spin": "spin_spread:.3f",
    "step / spin": "spread_ratio:.3f",
    "of products": "products_spread:.3f",
    "step / products": "spread_ratio_products:.3f",
}
PREFILL = {
    "weights": "weights",
    "prefill of 128 ms p50": "prefill_ms:.1f",
    "p99": "prefill_p99_ms:.1f",
    "products alone ms": "products_ms:.1f",
    "x": "over_products:.2f",
}
SERVED = {
    "weights": "weights",
    "start to first token s": "first_token_s:.2f",
    "MB": "mb:.0f",
    "weights + KV MB": "declared_mb:.0f",
    "x": "memory_ratio:.2f",
    "idle % of a core": "idle_percent:.2f",
    "in process tok/s": "in_process_tok_s:.0f",
    "served tok/s": "served_tok_s:.0f",
    "booked first": "booked",
    "served / in process": "share:.3f",
    "loop us/token": "loop_us:.1f",
    "step thread us/token": "step_us:.1f",
}


def prompt_of(seed: int) -> list[int]:
    """128 distinct-enough token ids."""
    return [100 + (seed * 7919 + at * 104729) % 20_000 for at in range(PROMPT)]


def fill(engine: Engine, slots: Sequence[int]) -> list[float]:
    """Open ``slots`` and run their prompts; milliseconds of each prompt."""
    taken = []
    for slot in slots:
        engine.open(slot, Generation(prompt_of(slot), SAMPLING, OUTPUT + 1, ignore_eos=True, keep=False))
        begun = time.perf_counter_ns()
        read_prompt(engine, slot)
        taken.append((time.perf_counter_ns() - begun) / 1e6)
    return taken


def spread(times: Sequence[float]) -> float:
    """p99 / p50."""
    return (percentile(times, 99) or 0.0) / statistics.median(times)


class Floors:
    """Step times and the two floors, taken in turn so that they meet the same machine."""

    def __init__(self, model: LoadedModel) -> None:
        assert isinstance(model.engine, NativeEngine)
        self._engine, self._config = model.engine, model.config
        self._weights = self._engine.describe().weights

    def row(self, slots: int, steps: int) -> dict[str, Any]:
        """``steps`` decode steps of ``slots`` slots."""
        times, spins, products, reads = list[float](), list[float](), list[float](), list[float]()
        turns = (0, 0)
        while len(times) < steps:
            fill(self._engine, range(slots))
            for _ in range(OUTPUT // BLOCK):
                block = [self._timed(slots) for _ in range(BLOCK)]
                times += block
                turns = turns if all(turns) else self._turns(statistics.median(block))
                spins += [self._engine.spin_ns(turns[0]) / 1e6 for _ in range(BLOCK)]
                products += [self._engine.products_ns(turns[1]) / 1e6 for _ in range(BLOCK)]
                reads.append(self._engine.read_once_ns(slots, CONTEXT) / 1e6)
            for slot in range(slots):
                self._engine.close(slot)
        floor = statistics.median(reads)
        return {
            "weights": self._weights,
            "slots": slots,
            "steps": len(times),
            "step_ms": statistics.median(times),
            "floor_ms": floor,
            "over_floor": statistics.median(times) / floor,
            "spread": spread(times),
            "spin_ms": statistics.median(spins),
            "spin_spread": spread(spins),
            "spread_ratio": spread(times) / spread(spins),
            "products_ms": statistics.median(products),
            "products_spread": spread(products),
            "spread_ratio_products": spread(times) / spread(products),
        }

    def prefill(self, count: int) -> dict[str, Any]:
        """``count`` prompts of 128 tokens, alone on the engine."""
        times, turns = list[float](), list[float]()
        for _ in range(count):
            times += fill(self._engine, [0])
            self._engine.close(0)
            turns.append(self._engine.products_ns(1000) / 1000)
        alone = self._turns_of_a_prompt() * statistics.median(turns) / 1e6
        median = statistics.median(times)
        return {
            "weights": self._weights,
            "prefill_ms": median,
            "prefill_p99_ms": percentile(times, 99),
            "products_ms": alone,
            "over_products": median / alone,
        }

    def _turns_of_a_prompt(self) -> float:
        """How many turns of ``products_ns`` on every thread are as many products as a prompt takes in all layers."""
        model = self._config
        attention = (2 * model.heads + 2 * model.kv_heads) * model.head_dim  # queries, keys, values, and back
        token = model.layers * model.hidden * (attention + 3 * model.intermediate)
        turn = ROWS * PANEL * model.hidden * self._engine.describe().threads
        return PROMPT * token / turn

    def _timed(self, slots: int) -> float:
        begun = time.perf_counter_ns()
        self._engine.step(StepPlan(range(slots)))
        return (time.perf_counter_ns() - begun) / 1e6

    def _turns(self, ms: float) -> tuple[int, int]:
        """Of the spin and of the products, for as long as a step."""
        lengths = []
        for loop, probe in ((self._engine.spin_ns, 1_000_000), (self._engine.products_ns, 1_000)):
            lengths.append(int(probe * ms * 1e6 / min(loop(probe) for _ in range(5))))
        return lengths[0], lengths[1]


class TimedEngine:
    """The engine, with the processor time that its caller spends inside it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.inside_ns = 0

    def step(self, plan: StepPlan) -> Any:
        begun = time.thread_time_ns()
        sampled = self._engine.step(plan)
        self.inside_ns += time.thread_time_ns() - begun
        return sampled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Driver:
    """The closed loop without a server: ``requests`` generations, every slot busy while there are some left."""

    def __init__(self, engine: Engine, requests: int) -> None:
        self._timed = TimedEngine(engine)
        self._left, self._running = requests, 0
        self._done = threading.Event()
        self._tokens, self._thread_ns = 0, 0
        self._clock = StepClock(self._timed, self._deliver, time.monotonic_ns)  # type: ignore[arg-type]

    def run(self) -> tuple[float, float]:
        """Tokens a second, and microseconds of the step thread outside the engine for each token."""
        for slot in range(SLOTS):
            self._admit(slot)
        begun = time.perf_counter()
        self._clock.start()
        self._done.wait()
        seconds = time.perf_counter() - begun
        self._clock.stop()
        return self._tokens / seconds, (self._thread_ns - self._timed.inside_ns) / 1000 / self._tokens

    def _admit(self, slot: int) -> None:
        if self._left:
            self._left -= 1
            self._running += 1
            ids = prompt_of(1000 + self._left)
            self._clock.admit(slot, Generation(ids, SAMPLING, OUTPUT, ignore_eos=True, keep=False))

    def _deliver(self, report: StepReport) -> None:
        self._tokens += len(report.tokens)
        self._thread_ns = time.thread_time_ns()
        for slot in report.released:
            self._running -= 1
            self._admit(slot)
        if not self._running:
            self._done.set()


def stream(url: str, requests: int) -> tuple[float, int]:
    """Tokens a second that the client counts over ``requests`` requests of 32 workers, and how many were booked first.

    A server that has just started on a disturbed machine takes its steps for slower than they are: of 32 requests
    at once it may book the last few.
    """
    target = Target("server", url, "any" if "stub" in url else first_model(url))
    payloads = Work(PROMPT - 1, OUTPUT, 0.7, 1).payloads(target, "engine", requests)
    loop = LoadLoop(url, retry=True)
    gc.collect()
    begun = time.perf_counter_ns()
    records = loop.closed(payloads, SLOTS)
    seconds = (max(record.end_ns for record in records) - begun) / 1e9
    loop.close()
    failed = sorted({f"{record.status} {record.error}" for record in records if not record.ok})
    assert not failed, failed
    return sum(record.tokens for record in records) / seconds, sum(record.refusals for record in records)


def in_process(model: LoadedModel, requests: int, step_ms: float) -> tuple[float, float]:
    """The driver's figures while the client reads as many events, as fast, from a server that computes nothing."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("stream_stub.py")), str(port), f"{step_ms}", str(OUTPUT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stub:
        assert stub.stdout is not None
        stub.stdout.readline()
        try:
            client = threading.Thread(target=lambda: read_stub(port, requests))
            client.start()
            figures = Driver(model.engine, requests).run()
            client.join()
        finally:
            stub.kill()
    return figures


def read_stub(port: int, requests: int) -> None:
    """The client in a process of its own, as it is when a server is measured."""
    code = f"import engine; engine.read({port}, {requests})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


def read(port: int, requests: int) -> None:
    """Run by ``read_stub``."""
    url = f"http://127.0.0.1:{port}"
    payloads = Work(PROMPT - 1, OUTPUT, 0.7, 1).payloads(Target("stub", url, "stub"), "stub", requests)
    LoadLoop(url).closed(payloads, SLOTS)


def thread_cpu_s(pid: int) -> float:
    """Processor seconds of a process's first thread, the event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def first_token_s(weights: str) -> float:
    """Seconds from the start of the process to the first token of its first request."""
    begun = time.perf_counter()
    with own_server(["--weights", weights, "--slots", str(SLOTS), "--slot-tokens", "512"]) as (url, _):
        payloads = Work(PROMPT - 1, 1, 0.7, 1).payloads(Target("", url, first_model(url)), "first", 1)
        loop = LoadLoop(url)
        loop.closed(payloads, 1)
        loop.close()
        return time.perf_counter() - begun


def served(weights: str, requests: int) -> dict[str, Any]:
    """The server's own figures, and those of the same engine without it: in turn, as machines vary."""
    starts = statistics.median(first_token_s(weights) for _ in range(3))
    rates, alone, booked, loop_s = [], [], 0, 0.0
    with own_server(["--weights", weights, "--slots", str(SLOTS), "--slot-tokens", "512"]) as (url, pid):
        stream(url, SLOTS)
        with loaded(weights=weights, **SIZES) as model:
            for round_ in range(1, ROUNDS + 1):
                before = thread_cpu_s(pid)
                rate, again = stream(url, requests)
                rates.append(rate)
                booked += again
                loop_s += thread_cpu_s(pid) - before
                alone.append(in_process(model, requests, 1000 * SLOTS / rates[-1]))
                print(f"# round {round_}: {rates[-1]:.0f} and {alone[-1][0]:.0f} tokens/s", file=sys.stderr)
        time.sleep(1)
        idle = cpu_s(pid)
        time.sleep(5)
        idle = (cpu_s(pid) - idle) / 5
        figures = {"first_token_s": starts, "served_tok_s": statistics.median(rates), "mb": resident_mb(pid)}
    return figures | {
        "booked": booked,
        "loop_us": loop_s / (ROUNDS * requests * OUTPUT) * 1e6,
        "idle_percent": idle * 100,
        "in_process_tok_s": statistics.median(rate for rate, _ in alone),
        "step_us": statistics.median(us for _, us in alone),
        "share": statistics.median(rate / other for rate, (other, _) in zip(rates, alone, strict=True)),
    }


def declared_mb(model: LoadedModel) -> float:
    """Packed weights that a step reads, and the declared keys and values: of all slots and of the shared prefixes."""
    assert isinstance(model.engine, NativeEngine)
    config, info = model.config, model.engine.describe()
    context = contract.Contract().context
    prefixes = context.prefixes * min(context.system_tokens, info.slot_tokens)
    token = config.layers * config.kv_heads * (3 * config.head_dim + 8)  # int16 keys, int8 values, two scales
    return (model.engine.weight_bytes + token * (info.slots * info.slot_tokens + prefixes)) / 1e6


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--weights", default="exact,int8", help="modes to measure")
    parser.add_argument("--steps", type=int, default=640, help="decode steps for each occupancy")
    parser.add_argument("--requests", type=int, default=96, help="of the comparison with the server")
    given = parser.parse_args()
    before, rows = machine(), []
    steps, prefills, servers = [], [], []
    for weights in given.weights.split(","):
        print(f"# {weights}: steps and floors", file=sys.stderr)
        with loaded(weights=weights, **SIZES) as model:
            floors = Floors(model)
            steps += [floors.row(slots, given.steps) for slots in (1, 8, SLOTS)]
            prefills.append(floors.prefill(32))
            declared = declared_mb(model)
        print(f"# {weights}: the server, and the engine without it", file=sys.stderr)
        row = {"weights": weights, "declared_mb": declared} | served(weights, given.requests)
        row["memory_ratio"] = row["mb"] / declared
        servers.append(row)
    for columns, table in ((STEPS, steps), (PREFILL, prefills), (SERVED, servers)):
        show(columns, table)
        print()
        rows += table
    write(given.json, "engine", before, rows)


if __name__ == "__main__":
    main()
