#!/usr/bin/env python3
"""How many requests a second `zerolayer simulate` decides on one core, from calm to overload. Takes about ten seconds.

    python bench/simulate.py
    python bench/simulate.py --requests 200000 --json result.json

A node of 16 slots, steps of 10 ms (30 ms with a chunk), answers of 200 tokens and prompts of 2.5 chunks on average,
Poisson arrivals. What is refused comes back when it was told to, up to twice as stock clients do, or never. Of a calm
node most decisions need no calendar; under overload each attempt is booked or told a time by the server's own.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from zerolayer.check.cost_table import Cost
from zerolayer.check.simulate import Demand, Outcome, rules, simulate

COST = Cost(name="node", slots=16, decode_ms=10.0, mixed_ms=30.0, chunk_tokens=512, slot_tokens=100_000)
MEAN_TOKENS, MEAN_CHUNKS = 200, 2.5
RUNS = [(load, 2) for load in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 2.0)] + [(load, 0) for load in (0.5, 1.0, 2.0)]
ROUNDS = 3  # the best counts: what else the machine does is not asked for


def demand(load: float, count: int) -> Demand:
    """``count`` Poisson arrivals that keep a share of ``load`` of all slots busy."""
    rng = np.random.default_rng(1)
    work_ms = MEAN_TOKENS * COST.decode_ms + MEAN_CHUNKS * COST.mixed_ms
    at_ms = np.cumsum(rng.exponential(work_ms / COST.slots / load, count))
    chunks = rng.geometric(1 / MEAN_CHUNKS, count)
    return Demand(at_ms, chunks * float(COST.chunk_tokens), rng.geometric(1 / MEAN_TOKENS, count) * 1.0)


def rate(load: float, retries: int, count: int) -> tuple[Outcome, float]:
    """What became of ``count`` requests, and how many of them a second of this core decides at best."""
    work, best = demand(load, count), 0.0
    for _ in range(ROUNDS):
        began = time.process_time()
        seen = simulate(work, COST, 1, rules(retries=retries))
        best = max(best, seen.arrivals / (time.process_time() - began))
    return seen, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="of each load")
    parser.add_argument("--json", "--json-out", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'load':>5} {'retries':>7} {'at once':>8} {'later':>7} {'refused':>8} {'requests/s':>11}")
    for load, retries in RUNS:
        seen, per_s = rate(load, retries, options.requests)
        shares = [part / seen.arrivals for part in (seen.met, seen.booked, seen.refused)]
        names = ("load", "retries", "met", "booked", "refused", "per_s")
        rows.append(dict(zip(names, (load, retries, *shares, per_s), strict=True)))
        print(
            f"{load:>5} {retries:>7} {shares[0]:>8.2%} {shares[1]:>7.2%} {shares[2]:>8.2%} {per_s:>11,.0f}", flush=True
        )
    if options.json:
        options.json.write_text(json.dumps({"version": 2, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
