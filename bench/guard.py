"""What keys, limits, ledger and metrics cost on the way of a request, in CPU time, part by part. About 30 seconds.

    .venv/bin/python bench/guard.py --json FILE

Every figure is the best of many short rounds in this process: nothing is served, so no network, parser or model is in
it. The goal is 6 us for all rows of the cached path together.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from in_process import machine

from zerolayer.front.doorkeeper import shown
from zerolayer.front.receipt import Books, Receipt
from zerolayer.guard.auth.authenticator import Authenticator
from zerolayer.guard.auth.signing import KeyFolder, Wish
from zerolayer.guard.budget.budgets import Budgets, Size
from zerolayer.guard.budget.journal import BudgetJournal
from zerolayer.guard.identity import Identity, Quota
from zerolayer.guard.ledger.audit import Audit
from zerolayer.guard.ledger.ledger import Ledger, Rules
from zerolayer.guard.spent import Spent
from zerolayer.observe.compute import ComputeMeter
from zerolayer.observe.metrics import Metrics
from zerolayer.observe.stages import Stage, StageClock
from zerolayer.wire.http1_head import NO_HEAD, Head, first_values

GOAL_US = 6.0
FIRST_GOAL_US, CACHED_GOAL_US = 200.0, 1.5
ROUNDS, CALLS = 2000, 200
_LIMITS = Quota(requests_per_minute=100_000_000, tokens_per_minute=4_000_000_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", "--json-out", metavar="FILE", type=Path)
    options = parser.parse_args()
    print("about 30 seconds ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder))
    for name, us in figures.items():
        print(f"{name:<44}{us:8.2f} us")
    if options.json:
        told = {"bench": "guard", **machine(), "us": figures}
        options.json.write_text(json.dumps(told, indent=2) + "\n")
    return 0


def measure(folder: Path) -> dict[str, float]:
    """Microseconds by row."""
    keys = KeyFolder(folder / "keys")
    documents = keys.create(int(time.time()))
    new = [keys.issue(Wish("bench", 0, _LIMITS), int(time.time()))[0].encode() for _ in range(300)]
    door = Authenticator(documents.key_set, documents.revocations, time.time, time.monotonic_ns)
    first = first_use(door, new)
    cached = cached_us(door, new[0])
    limits = limits_us(door.admit(new[0], "bench"), folder / "budgets")
    return {
        f"key, first use, median (goal {FIRST_GOAL_US:g})": first,
        f"key, cached (goal {CACHED_GOAL_US:g})": cached,
        "two limits: hold, tighten, begin, settle, log": limits,
        "ledger: receipt, record, hash, write": (record := record_us(Path(folder / "ledger"))),
        "metrics: a request's counts and histograms": (counts := metrics_us()),
        f"all of the cached path together (goal {GOAL_US:g})": cached + limits + record + counts,
    }


def first_use(door: Authenticator, keys: list[bytes]) -> float:
    """A key that nobody has shown before: parsed, verified, remembered."""
    took = []
    for key in keys:
        started = time.perf_counter_ns()
        door.admit(key, "bench")
        took.append(time.perf_counter_ns() - started)
    return sorted(took)[len(took) // 2] / 1000


def cached_us(door: Authenticator, key: bytes) -> float:
    """The same key again, from the headers to the identity."""
    names = (b"host", b"accept", b"user-agent", b"content-type")
    headers = (*((name, b"x") for name in names), (b"authorization", b"Bearer " + key))
    head = Head("POST", "/v1/chat/completions", "", headers, 1, True, False, 0, first_values(headers))

    def again() -> None:
        found = shown(head)
        assert found is not None
        assert door.known(found) is not None

    return best_us(again)


def limits_us(identity: Identity, log: Path) -> float:
    """One request from its arrival to its end against a limit of requests and one of tokens."""
    journal = BudgetJournal(log)
    offset_ns = time.time_ns() - time.monotonic_ns()
    budgets = Budgets(lambda: (time.monotonic_ns() + offset_ns) // 1000, journal=journal)
    journal.states = budgets.states

    def one() -> None:
        hold = budgets.reserve(identity, Size(60, 1000), Size(300, 3000))
        hold.tighten(Size(200, 2000))
        hold.begin()
        hold.settle(Spent(100, 50, 0, 1500))

    took = best_us(one)
    journal.close()
    return took


def record_us(folder: Path) -> float:
    """One request from its receipt to its record in the kernel's hands."""
    identity = Identity("bench", b"k" * 16)
    stages, work = StageClock(0), Ran()
    for stage in Stage:
        stages.mark(stage, 1_000_000 * (stage + 1))
    ledger = Ledger(folder, time.time, Rules(segment_bytes=1 << 30))
    books = Books(ledger, "smollm2", Audit(), ComputeMeter(2, 16, 0))

    def one() -> None:
        receipt = Receipt(b"chat.completions")
        receipt.began(work, 64, 60_000)
        receipt.finished("stop")
        books.file(receipt, identity, "0123456789ab00000001", 200, stages, True, NO_HEAD)

    took = best_us(one)
    ledger.close()
    return took


class Ran:
    """A request that has run."""

    compute_ns = 123_456_789

    def spent(self) -> Spent:
        return Spent(100, 50, 0, 123_456)


def metrics_us() -> float:
    """What is counted once a request; what is counted a token is part of a step."""
    metrics, chance = Metrics("smollm2"), random.Random(1)
    sizes = metrics.sizes
    requests = []
    for _ in range(1000):  # no two alike: equal ones would be sorted at once
        stages, now = StageClock(0), 0.0
        for stage in Stage:
            stages.mark(stage, int(now := now + chance.lognormvariate(16, 2)))
        requests.append((stages, chance.random(), (chance.randrange(1000), 0, chance.randrange(500))))

    def many() -> None:
        for stages, first_s, tokens in requests:
            sizes.asked(1)
            metrics.admitted(tokens[0])
            sizes.started(64)
            metrics.first_token.observe(first_s)
            metrics.finished("stop", stages, tokens)
        metrics.totals(0, 0)  # once a second, or after so many: where they are added up

    return min(timeit.repeat(many, timer=time.process_time, number=1, repeat=ROUNDS)) / len(requests) * 1e6


def best_us(call: Callable[[], None]) -> float:
    """The best round, in microseconds a call."""
    return min(timeit.repeat(call, timer=time.process_time, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


if __name__ == "__main__":
    raise SystemExit(main())
