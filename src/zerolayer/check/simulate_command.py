"""``zerolayer simulate``: cost tables and a trace in, a table of outcomes out."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import msgspec
import numpy as np

from zerolayer.check import charts
from zerolayer.check.errors import InputFileError
from zerolayer.check.html_report import page, table
from zerolayer.check.json_report import finite
from zerolayer.check.simulate import Cost, Demand, Outcome, demand, find_nodes, read_cost, rules, simulate
from zerolayer.check.simulated_node import Rules
from zerolayer.check.text_report import aligned, number
from zerolayer.check.trace import read_trace
from zerolayer.errors import UsageError

VERSION = 2  # 2 adds speed and slots
CURVE = 8  # points


@dataclass(frozen=True)
class SimulateOptions:
    """What the simulate command was asked: each of the lists with each. No ``nodes``: find them for ``target``."""

    costs: tuple[str, ...]
    trace: str
    speeds: tuple[float, ...] = (1.0,)
    limit: int | None = None
    nodes: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()  # instead of the cost tables' own
    target: float = 0.99
    deadline_ms: float | None = None
    first_token_ms: float | None = None
    senders: int = 0
    retries: int = 2
    html: str | None = None
    json: bool = False


def run(options: SimulateOptions) -> int:
    """Simulate each kind of node and print the outcomes; 4 if no number of nodes reaches the target.

    Raises ``InputFileError``.
    """
    if not options.costs:
        raise UsageError("Name at least one cost table with --cost FILE.")
    limits = rules(options.deadline_ms, options.first_token_ms, senders=options.senders, retries=options.retries)
    kinds = [read_cost(Path(name)) for name in options.costs]
    kinds = [kind.with_slots(slots) for kind in kinds for slots in options.slots or (kind.slots,)]
    plans = []
    for speed in options.speeds:
        work = demand(read_trace(Path(options.trace), speed=speed, limit=options.limit))
        for cost in kinds:
            plans += [Plan(cost, speed, work, outcome) for outcome in _outcomes(options, work, cost, limits)]
    if options.html is not None:
        _write(Path(options.html), _page(options, plans, limits))
    print(_json(plans) if options.json else "\n".join(aligned(_rows(plans))))
    return 0 if all(plan.outcome is not None for plan in plans) else 4


@dataclass(frozen=True)
class Plan:
    """One line of the table; ``outcome`` None: no number of nodes reaches the target."""

    cost: Cost
    speed: float
    work: Demand
    outcome: Outcome | None


def _outcomes(options: SimulateOptions, work: Demand, cost: Cost, limits: Rules) -> list[Outcome | None]:
    if not options.nodes:
        return [find_nodes(work, cost, options.target, limits)]
    return [simulate(work, cost, nodes, limits) for nodes in options.nodes]


_COUNTS = ["met", "booked", "missed", "refused", "infeasible"]
_HEADER = ["hardware", "speed", "slots", "nodes", *_COUNTS, "busy", "price", "per 1000", "per served"]


def _rows(plans: list[Plan]) -> list[list[str]]:
    rows = [_HEADER]
    for plan in plans:
        outcome, head = plan.outcome, [plan.cost.name, f"{plan.speed:g}", str(plan.cost.slots)]
        if outcome is None:
            rows.append([*head, "no number of nodes reaches the target", *[""] * (len(_HEADER) - 4)])
            continue
        shares = [f"{getattr(outcome, name) / max(1, outcome.arrivals):.2%}" for name in _COUNTS]
        prices = (outcome.price, outcome.price_per_1000_tokens, outcome.price_per_served)
        rows.append([*head, str(outcome.nodes), *shares, f"{outcome.utilisation:.1%}", *map(number, prices)])
    return rows


def _json(plans: list[Plan]) -> str:
    outcomes = []
    for plan in plans:
        outcome, entry = plan.outcome, {"hardware": plan.cost.name, "speed": plan.speed, "slots": plan.cost.slots}
        if outcome is None:
            outcomes.append(entry | {"nodes": None})
            continue
        counts = {name: getattr(outcome, name) for name in ("nodes", "arrivals", *_COUNTS, "utilisation", "hours")}
        prices = {
            "price": outcome.price,
            "price_per_1000_tokens": finite(outcome.price_per_1000_tokens),
            "price_per_served": finite(outcome.price_per_served),
        }
        outcomes.append(entry | counts | prices)
    return msgspec.json.encode({"version": VERSION, "outcomes": outcomes}).decode()


def _page(options: SimulateOptions, plans: list[Plan], limits: Rules) -> str:
    """The table, and for each plan the share served against the number of nodes."""
    parts = [table(_rows(plans))]
    drawn: set[tuple[str, int, float]] = set()
    for plan in plans:
        key = (plan.cost.name, plan.cost.slots, plan.speed)
        if key in drawn:
            continue
        drawn.add(key)
        middle = max(
            [1, *[p.outcome.nodes for p in plans if p.outcome and (p.cost, p.speed) == (plan.cost, plan.speed)]]
        )
        nodes = np.unique(np.round(np.geomspace(max(1, middle / 2), max(3, 1.5 * middle), CURVE))).astype(np.int64)
        seen = [simulate(plan.work, plan.cost, int(count), limits) for count in nodes]
        lines = {
            "served": np.array([100 * each.served_share for each in seen]),
            "at once": np.array([100 * each.met / max(1, each.arrivals) for each in seen]),
        }
        chart = charts.shares(nodes.astype(np.float64), lines, "nodes", "% of requests")
        title = f"{plan.cost.name}, {plan.cost.slots} slots, speed {plan.speed:g}"
        parts.append(f"<h2>{escape(title)}</h2><figure>{chart}</figure>")
    deadline = "the contract's" if options.deadline_ms is None else f"{options.deadline_ms:.0f} ms"
    title = f"Fleet for {Path(options.trace).name}, {len(plans[0].work.at_ms)} requests, deadline {deadline}"
    return page(title, "".join(parts))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputFileError(f"The report cannot be written ({type(error).__name__}). Choose another file.") from None
