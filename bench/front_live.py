"""The whole server with probes: how long the event loop and the step thread keep each other waiting.

python bench/front_live.py 32; the number is that of the slots. The first line it prints is its port and the id of its
step thread; after a line on standard input it prints what it has seen as JSON, and ends.

``loop``: from the end of a step to the moment at which the loop takes its report. ``border``: from the end of a step
to the beginning of the next, while there is work. ``step``: how much of that the step thread was not running, though it
wanted to: it waited for the interpreter or for a core. ``held``: from the moment at which a step had computed to that
at which the step thread had the interpreter and the step's tokens. Milliseconds. ``waits`` says of each of the loop's
that was too long what it was made of (``front_waits.py``). With ``--no-slice`` the loop's thread keeps the usual time
slice.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from typing import Any

import msgspec
import uvloop
from figures import percentile
from front_waits import LONG_MS, Moment, Wait, Watch, as_json, made_of

from zerolayer.contract import load
from zerolayer.model.load import load_model
from zerolayer.serve.loop_slice import shorten_slice
from zerolayer.serve.running import running

SWITCH_S = 0.0002  # as in zerolayer serve
_MOST = 200_000


class TimedEngine:
    """Stands before the engine, on the step thread."""

    def __init__(self, engine) -> None:
        self._engine = engine
        self._ended_ns = self._cpu_ns = 0
        self.watch: Watch | None = None  # as soon as there is a loop
        self.began_ns = 0
        self.then: Moment | None = None  # at the end of the last step
        self.border_ms: list[float] = []
        self.step_ms: list[float] = []
        self.held_ms: list[float] = []

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def step(self, plan):
        began_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        self.began_ns = began_ns
        if self._ended_ns and len(self.step_ms) < _MOST:
            border = began_ns - self._ended_ns
            self.border_ms.append(border / 1e6)
            self.step_ms.append((border - (cpu_ns - self._cpu_ns)) / 1e6)
        tokens = self._engine.step(plan)
        if len(self.held_ms) < _MOST:
            self.held_ms.append((time.monotonic_ns() - self._engine.computed_ns) / 1e6)
        # With rows left after this step the next one could begin at once.
        busy = len(plan.decode) + (plan.prefill_slot >= 0) > sum(token.finish is not None for token in tokens)
        self._ended_ns = time.monotonic_ns() if busy else 0
        self._cpu_ns = time.thread_time_ns()
        self.then = self.watch.look() if self.watch else None
        return tokens


class Probe:
    """Stands before ``Pace.on_step``."""

    def __init__(self, take, engine: TimedEngine) -> None:
        self._take = take
        self._engine = engine
        self._watch = engine.watch = Watch(os.getppid())
        self.loop_ms: list[float] = []
        self.waits: list[Wait] = []

    def on_step(self, report) -> None:
        if len(self.loop_ms) < _MOST and report.ended_ns > report.started_ns:
            wait_ns = time.monotonic_ns() - report.ended_ns
            self.loop_ms.append(wait_ns / 1e6)
            self._look(report, wait_ns)
        self._take(report)

    def _look(self, report, wait_ns: int) -> None:
        """After every one, so that what was stolen is told for a short time."""
        then, now, began_ns = self._engine.then, self._watch.look(), self._engine.began_ns
        since = self._watch.since()
        if wait_ns > LONG_MS * 1e6 and then is not None and report.started_ns < then.at <= report.ended_ns:
            border_ns = began_ns - report.ended_ns if began_ns > report.ended_ns else 0
            self.waits.append(made_of(then, now, wait_ns, border_ns, since))


def figures(probe: Probe, engine: TimedEngine) -> dict[str, Any]:
    """Percentiles."""
    found: dict[str, Any] = {"steps": len(probe.loop_ms), "waits": as_json(probe.waits)}
    timed = (("step", engine.step_ms), ("border", engine.border_ms), ("held", engine.held_ms))
    for name, values in (("loop", probe.loop_ms), *timed):
        found |= {f"{name}_p{q}": percentile(values, q) for q in (50, 99, 100)}
    return found


async def serve(slots: str, *, short: bool) -> None:
    """Until a line comes."""
    flags = {"port": "0", "admin": "127.0.0.1:0", "slots": slots, "slot-tokens": "2048"}
    contract = load(None, {}, flags).contract
    patient = msgspec.structs.replace(
        contract.deadline, default_ms=3_600_000, first_token_ms=3_600_000, per_token_ms=60_000
    )
    contract = msgspec.structs.replace(contract, deadline=patient)  # 32 prompts at once are to be served, not refused
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loaded = load_model(contract, lambda _: None)
    engine = TimedEngine(loaded.engine)
    async with running(contract, msgspec.structs.replace(loaded, engine=engine)) as server:
        probe = Probe(server.pace.on_step, engine)
        server.pace.on_step = probe.on_step
        note = shorten_slice() if short else "the usual time slice"
        gc.collect()
        gc.freeze()
        server.collector.start()
        steps = next(thread for thread in threading.enumerate() if thread.name == "zerolayer-step")
        print(server.port, steps.native_id, flush=True)

        def wait() -> None:
            sys.stdin.readline()
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=wait, daemon=True).start()
        await done.wait()
        glue = server.glue.share(time.monotonic_ns())
        print(json.dumps({"slice": note, "glue": glue, **figures(probe, engine)}), flush=True)
    gc.unfreeze()


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_S)
    uvloop.run(serve(sys.argv[1], short="--no-slice" not in sys.argv))
