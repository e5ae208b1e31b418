"""What the benches of the engine share: the bundled model in this process, a table, and JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zerolayer import __version__, contract
from zerolayer.model.engine import Engine, Generation, StepPlan
from zerolayer.model.load import LoadedModel, load_model


def options(about: str | None) -> argparse.ArgumentParser:
    """A parser with ``--json``."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", "--json-out", type=Path, help="write the rows as JSON")
    return parser


@contextlib.contextmanager
def loaded(**flags: str) -> Iterator[LoadedModel]:
    """The model as ``zerolayer serve`` loads it; ``flags`` are its flags, with _ for -."""
    given = {name.replace("_", "-"): text for name, text in flags.items()}
    model = load_model(contract.load(None, {}, given).contract, lambda line: print(line, file=sys.stderr))
    try:
        yield model
    finally:
        model.engine.shutdown()


def read_prompt(engine: Engine, slot: int) -> None:
    """Run the whole prompt of an open slot."""
    while left := engine.prefill_left(slot):
        engine.step(StepPlan((), slot, min(left, engine.describe().chunk_tokens)))


def decode_ns(
    engine: Engine,
    slots: int,
    generation_of: Callable[[int], Generation],
    steps: int,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> list[int]:
    """Nanoseconds of ``steps`` steps in which ``slots`` slots decode, after one that is not timed."""
    for slot in range(slots):
        engine.open(slot, generation_of(slot))
        read_prompt(engine, slot)
    plan = StepPlan(tuple(range(slots)))
    engine.step(plan)
    taken = []
    for _ in range(steps):
        started = clock_ns()
        tokens = engine.step(plan)
        taken.append(clock_ns() - started)
        assert not any(token.broken for token in tokens)
    for slot in range(slots):
        engine.close(slot)
    return taken


def some_ids(slot: int, count: int) -> list[int]:
    """A prompt of its own for each slot."""
    return [(7 * slot + 31 * at) % 10_000 + 100 for at in range(count)]


def step_row(slots: int, times: Sequence[int], base_ns: float) -> dict[str, Any]:
    """Of steps in nanoseconds: median, P99, and what a slot costs over ``base_ns``."""
    median = statistics.median(times)
    return {
        "slots": slots,
        "p50_ms": median / 1e6,
        "p99_ms": sorted(times)[int(len(times) * 0.99)] / 1e6,
        "over_us": (median - base_ns) / slots / 1e3,
    }


def machine() -> dict[str, Any]:
    """Where and when a figure was taken; a load average above 1 means that something else was running."""
    return {
        "version": __version__,
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "unix_s": int(time.time()),
    }


def show(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a Markdown table. ``columns`` maps a title to a key of the rows and its format, as in ``"step_ms:.2f"``."""
    cells = [list(columns)]
    for row in rows:
        formats = (column.partition(":") for column in columns.values())
        cells.append([format(row[key], style) for key, _, style in formats])
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    padded = ([cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in cells)
    lines = [f"| {' | '.join(line)} |" for line in padded]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    print("\n".join(lines))


def write(path: Path | None, what: str, before: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``rows`` as JSON, with ``machine()`` as it was before and as it is now."""
    if path is not None:
        document = {"version": 1, "what": what, "before": before, "after": machine(), "rows": rows}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
