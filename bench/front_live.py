"""The whole server with probes: how long the event loop and the step thread keep each other waiting.

python bench/front_live.py 32; the number is that of the slots. The first line it prints is its port and the id of its
step thread; after a line on standard input it prints what it has seen as JSON, and ends.

``loop``: from the end of a step to the moment at which the loop takes its report. ``step``: from the end of a step
to the beginning of the next, while there is work. Milliseconds. With ``--no-slice`` the loop's thread keeps the usual
time slice.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time

import msgspec
import uvloop
from figures import percentile

from zerolayer.contract import load
from zerolayer.model.load import load_model
from zerolayer.serve.loop_slice import shorten_slice
from zerolayer.serve.running import running

SWITCH_S = 0.0005  # as in zerolayer serve
_MOST = 200_000


class Probe:
    """Stands before ``Pace.on_step``."""

    def __init__(self, take) -> None:
        self._take = take
        self._ended_ns = 0
        self._busy = False
        self.loop_ms: list[float] = []
        self.step_ms: list[float] = []

    def on_step(self, report) -> None:
        if len(self.loop_ms) < _MOST and report.ended_ns > report.started_ns:
            self.loop_ms.append((time.monotonic_ns() - report.ended_ns) / 1e6)
            if self._busy:
                self.step_ms.append((report.started_ns - self._ended_ns) / 1e6)
            self._ended_ns = report.ended_ns
            # With rows left after this step the next one could begin at once.
            self._busy = len(report.decode) + (report.prefill_slot >= 0) > len(report.released)
        self._take(report)

    def figures(self) -> dict[str, float | None]:
        """Percentiles."""
        found = {"steps": float(len(self.loop_ms))}
        for name, values in (("loop", self.loop_ms), ("step", self.step_ms)):
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
    async with running(contract, load_model(contract, lambda _: None)) as server:
        probe = Probe(server.pace.on_step)
        server.pace.on_step = probe.on_step
        note = shorten_slice() if short else "the usual time slice"
        gc.collect()
        gc.freeze()
        steps = next(thread for thread in threading.enumerate() if thread.name == "zerolayer-step")
        print(server.port, steps.native_id, flush=True)

        def wait() -> None:
            sys.stdin.readline()
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=wait, daemon=True).start()
        await done.wait()
        glue = server.glue.share(time.monotonic_ns())
        print(json.dumps({"slice": note, "glue": glue, **probe.figures()}), flush=True)
    gc.unfreeze()


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_S)
    uvloop.run(serve(sys.argv[1], short="--no-slice" not in sys.argv))
