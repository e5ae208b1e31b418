#!/usr/bin/env python3
"""`zerolayer simulate` beside the real server: the same trace and seed, the same clients, the same fates.

    python bench/simulate_beside.py
    python bench/simulate_beside.py --requests 4000 --rates 6,8,10,15 --json result.json

Four slots of the mock engine, answers of 20 tokens, Poisson arrivals; what is refused comes back when it was told to,
twice at most. The simulator gets the mean time between two tokens that was measured, as a cost table should have it.
All rates run at the same time, each against a server of its own, which sleeps most of it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from own_server import own_server

from zerolayer.check import target as targets
from zerolayer.check.cost_table import Cost
from zerolayer.check.exchange import Exchange, Planned
from zerolayer.check.load_client import LoadClient
from zerolayer.check.simulate import Demand, Outcome, rules, simulate
from zerolayer.check.text_report import aligned

SLOTS, STEP_MS, TOKENS, RETRIES = 4, 20.0, 20, 2  # steps so long that a busy machine hardly stretches them
SEED = 11
Tries = dict[int, list[Exchange]]


@dataclass(frozen=True)
class Fates:
    """Of ``requests`` at a rate: how many started at once, and how many were refused for good."""

    requests: int
    met: int
    refused: int


@dataclass(frozen=True)
class Served:
    """What the server did. ``step_ms`` is the mean time between tokens; ``stalled``: it stood still for a while."""

    fates: Fates
    step_ms: float
    stalled: bool


def arrivals_ms(per_s: float, requests: int) -> list[float]:
    """The trace."""
    return np.cumsum(np.random.default_rng(SEED).exponential(1000 / per_s, requests)).tolist()


def served(per_s: float, requests: int) -> Served:
    """Run the trace against a server of its own."""
    with own_server(["--engine", f"mock:step_us={STEP_MS * 1000:.0f}", "--slots", str(SLOTS)]) as (url, _):
        tries = _attempts(url, arrivals_ms(per_s, requests))
    last = [each[-1] for each in tries.values()]
    whole = [each for each in last if each.status == 200]
    gaps = [(each.end_ns - each.pieces[0][0]) / 1e6 / (TOKENS - 1) for each in whole]
    step_ms = float(np.mean(gaps)) if gaps else STEP_MS
    took_ms = [(each.end_ns - each.sent_ns) / 1e6 for each in whole]
    met = sum(each[0].status == 200 for each in tries.values())
    return Served(
        Fates(len(tries), met, len(last) - len(whole)), step_ms, max(took_ms, default=1e9) > 3 * TOKENS * step_ms
    )


def _attempts(url: str, at_ms: Sequence[float]) -> Tries:
    """The attempts of each request, which come when they were told to."""
    tries: Tries = {}
    target = targets.parse(url, "openai", "", ())
    client = LoadClient(target.endpoint, 20)
    target = targets.discover(client, target, ask_api=True)
    rng = random.Random(SEED)
    client.prepare(32)
    start = client.clock() + 10_000_000

    def plan(number: int, at_ns: int, body: bytes, attempt: int) -> Planned:
        return Planned(at_ns, target.payload(body, attempt), "replay", attempt, 1, number, body)

    def again(exchange: Exchange) -> Iterator[Planned]:
        planned = exchange.planned
        tries.setdefault(planned.position, []).append(exchange)
        if exchange.status == 429 and planned.group < RETRIES and exchange.promised_ms >= 0:
            at_ns = exchange.end_ns + exchange.promised_ms * 1_000_000
            yield plan(planned.position, at_ns, planned.body, planned.group + 1)

    client.run(
        [plan(i, start + int(at * 1e6), target.make_body(rng, TOKENS, 0), 0) for i, at in enumerate(at_ms)], again
    )
    client.close()
    return tries


def planned(per_s: float, requests: int, step_ms: float) -> Fates:
    """What the simulator says of it."""
    cost = Cost(name="mock", slots=SLOTS, decode_ms=step_ms, mixed_ms=step_ms, chunk_tokens=512, slot_tokens=4096)
    at_ms = np.array(arrivals_ms(per_s, requests))
    work = Demand(at_ms, np.full(requests, 50.0), np.full(requests, float(TOKENS)))
    outcome: Outcome = simulate(work, cost, 1, rules(senders=1, retries=RETRIES))
    return Fates(outcome.arrivals, outcome.met, outcome.refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="of each rate")
    parser.add_argument("--rates", default="6,8,10,15", help="requests per second; four slots of 400 ms each serve 10")
    parser.add_argument("--json", "--json-out", type=Path)
    options = parser.parse_args()
    rates = [float(part) for part in options.rates.split(",")]
    print(f"about {options.requests / min(rates) + 10:.0f} s", flush=True)
    with ThreadPoolExecutor(len(rates)) as pool:
        seen = list(pool.map(lambda rate: served(rate, options.requests), rates))
    rows, results = [], []
    for rate, real in zip(rates, seen, strict=True):
        ours = planned(rate, options.requests, real.step_ms)
        points = {
            name: 100 * (getattr(real.fates, name) - getattr(ours, name)) / options.requests
            for name in ("met", "refused")
        }
        results.append({"rate": rate, "step_ms": real.step_ms, "stalled": real.stalled, "points": points})
        shares = [f"{getattr(each, name) / options.requests:.1%}" for name in points for each in (real.fates, ours)]
        worst = max(map(abs, points.values()))
        rows.append(
            [f"{rate:g}", f"{real.step_ms:.2f}", *shares, f"{worst:.1f}{', stood still' if real.stalled else ''}"]
        )
    header = ["rate/s", "step ms", "met", "simulated", "refused", "simulated", "points apart"]
    print("\n".join(aligned([header, *rows])))
    if options.json:
        options.json.write_text(
            json.dumps({"version": 1, "requests": options.requests, "rates": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
