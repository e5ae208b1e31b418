"""``zerolayer simulate``: cost tables and a trace in, a table of outcomes out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from pathlib import Path

import msgspec
import numpy as np

from zerolayer.check import charts
from zerolayer.check.errors import InputFileError
from zerolayer.check.html_report import page, table
from zerolayer.check.json_report import finite
from zerolayer.check.simulate import Cost, Demand, Outcome, demand, find_nodes, read_cost, simulate
from zerolayer.check.text_report import aligned, number
from zerolayer.check.trace import read_trace
from zerolayer.errors import UsageError

VERSION = 1


@dataclass(frozen=True)
class SimulateOptions:
    """What the simulate command was asked. ``nodes`` None means: find them for ``target``."""

    costs: tuple[str, ...]
    trace: str
    speed: float = 1.0
    limit: int | None = None
    nodes: int | None = None
    target: float = 0.99
    deadline_ms: float = math.inf
    html: str | None = None
    json: bool = False


def run(options: SimulateOptions) -> int:
    """Simulate each kind of node and print the outcomes; 4 if no number of nodes reaches the target.

    Raises ``InputFileError``.
    """
    if not options.costs:
        raise UsageError("Name at least one cost table with --cost FILE.")
    work = demand(read_trace(Path(options.trace), speed=options.speed, limit=options.limit))
    outcomes = []
    for cost in [read_cost(Path(name)) for name in options.costs]:
        if options.nodes is not None:
            outcome: Outcome | None = simulate(work, cost, options.nodes, options.deadline_ms)
        else:
            outcome = find_nodes(work, cost, options.target, options.deadline_ms)
        outcomes.append((cost, outcome))
    if options.html is not None:
        _write(Path(options.html), _page(options, work, outcomes))
    print(_json(outcomes) if options.json else "\n".join(aligned(_rows(outcomes))))
    return 0 if all(outcome is not None for _, outcome in outcomes) else 4


Outcomes = list[tuple[Cost, Outcome | None]]
_HEADER = [
    "hardware",
    "nodes",
    "met",
    "booked",
    "missed",
    "refused",
    "infeasible",
    "busy",
    "price",
    "per 1000",
    "per served",
]


def _rows(outcomes: Outcomes) -> list[list[str]]:
    rows = [_HEADER]
    for cost, outcome in outcomes:
        if outcome is None:
            rows.append([cost.name, "no number of nodes reaches the target", *[""] * (len(_HEADER) - 2)])
            continue
        counts = (outcome.met, outcome.booked, outcome.missed, outcome.refused, outcome.infeasible)
        rows.append(
            [
                cost.name,
                str(outcome.nodes),
                *(f"{count / max(1, outcome.arrivals):.2%}" for count in counts),
                f"{outcome.utilisation:.1%}",
                *(number(value) for value in (outcome.price, outcome.price_per_1000_tokens, outcome.price_per_served)),
            ]
        )
    return rows


def _json(outcomes: Outcomes) -> str:
    document = {
        "version": VERSION,
        "outcomes": [
            {"hardware": cost.name, "nodes": None}
            if outcome is None
            else {
                "hardware": cost.name,
                "nodes": outcome.nodes,
                "arrivals": outcome.arrivals,
                "met": outcome.met,
                "booked": outcome.booked,
                "missed": outcome.missed,
                "refused": outcome.refused,
                "infeasible": outcome.infeasible,
                "utilisation": outcome.utilisation,
                "hours": outcome.hours,
                "price": outcome.price,
                "price_per_1000_tokens": finite(outcome.price_per_1000_tokens),
                "price_per_served": finite(outcome.price_per_served),
            }
            for cost, outcome in outcomes
        ],
    }
    return msgspec.json.encode(document).decode()


def _page(options: SimulateOptions, work: Demand, outcomes: Outcomes) -> str:
    """The table, and for each kind of node the share served against the number of nodes."""
    parts = [table(_rows(outcomes))]
    for cost, outcome in outcomes:
        top = max(4, 2 * (outcome.nodes if outcome is not None else 1))
        nodes = np.unique(np.round(np.geomspace(1, top, 16))).astype(np.int64)
        seen = [simulate(work, cost, int(count), options.deadline_ms) for count in nodes]
        lines = {
            "served": np.array([100 * each.served_share for each in seen]),
            "at once": np.array([100 * each.met / max(1, each.arrivals) for each in seen]),
        }
        chart = charts.shares(nodes.astype(np.float64), lines, "nodes", "% of requests")
        parts.append(f"<h2>{escape(cost.name)}</h2><figure>{chart}</figure>")
    deadline = "none" if math.isinf(options.deadline_ms) else f"{options.deadline_ms:.0f} ms"
    title = f"Fleet for {Path(options.trace).name}, {len(work.at_ms)} requests, deadline {deadline}"
    return page(title, "".join(parts))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputFileError(f"The report cannot be written ({type(error).__name__}). Choose another file.") from None
