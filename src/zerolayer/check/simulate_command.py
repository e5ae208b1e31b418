"""``zerolayer simulate``: cost tables and a trace in, a table of outcomes out."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

import msgspec
import numpy as np

from zerolayer.check import charts
from zerolayer.check.cost_table import Cost, measured, read_cost, to_toml
from zerolayer.check.files import check_writable, write_bytes
from zerolayer.check.html_report import figure, legend, page, table
from zerolayer.check.json_report import finite
from zerolayer.check.simulate import Demand, Outcome, Unservable, demand, find_nodes, rules, simulate, unservable
from zerolayer.check.simulated_node import Rules
from zerolayer.check.sla_command import scraped
from zerolayer.check.statistics import Floats
from zerolayer.check.text_report import aligned, number
from zerolayer.check.trace import read_trace
from zerolayer.errors import UsageError

VERSION = 3  # 2 adds speed and slots, 3 what is never served
CURVE = 8  # points


@dataclass(frozen=True)
class SimulateOptions:
    """What the simulate command was asked: each of the lists with each. No ``nodes``: find them for ``target``."""

    costs: tuple[str, ...]
    trace: str | None
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
    measure: str | None = None  # admin address of a server whose cost table is wanted, and nothing else


def run(options: SimulateOptions) -> int:
    """Simulate each kind of node and print the outcomes; 4 if no number of nodes reaches the target.

    Raises ``InputFileError``, ``UsageError``.
    """
    if options.measure is not None:
        return measure(options.measure)
    if not options.costs or options.trace is None:
        raise UsageError("Name arrivals with --trace FILE, and at least one cost table with --cost FILE.")
    if options.html is not None:
        check_writable(Path(options.html))  # before the work that it is for
    limits = rules(options.deadline_ms, options.first_token_ms, senders=options.senders, retries=options.retries)
    kinds = [read_cost(Path(name)) for name in options.costs]
    kinds = [kind.with_slots(slots) for kind in kinds for slots in options.slots or (kind.slots,)]
    plans = []
    for speed in options.speeds:
        work = demand(read_trace(Path(options.trace), speed=speed, limit=options.limit))
        for cost in kinds:
            plans += [Plan(cost, speed, work, outcome) for outcome in _outcomes(options, work, cost, limits)]
    never = _never(options, plans, limits)
    told = [*aligned(_rows(plans)), _cheapest(options, plans), *map(_reason, never)]
    print(_json(plans, never) if options.json else "\n".join(filter(None, told)))
    if options.html is not None:
        write_bytes(Path(options.html), _page(options, plans, limits, never).encode())
    return 0 if all(plan.outcome is not None for plan in plans) else 4


def measure(url: str) -> int:
    """Print the cost table of the server at this admin address. Raises ``ClientError``, ``TargetError``."""
    print(to_toml(measured(scraped(url), url)), end="")
    return 0


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


def _never(options: SimulateOptions, plans: list[Plan], limits: Rules) -> list[Unservable]:
    """For each plan whose target no number of nodes can reach, as too many requests are served by none."""
    kinds = {_title(plan): plan for plan in plans}.values()
    seen = [unservable(plan.work, plan.cost, options.target, limits) for plan in kinds]
    return [each for each in seen if each.share > 1 - options.target]


def _reason(never: Unservable) -> str:
    """Why, and what to do."""
    cost, lines = never.cost, []

    def of_all(count: int) -> str:
        return f"{count} of {never.arrivals} requests ({count / never.arrivals:.2%})"

    if never.too_long:
        lines.append(
            f"{cost.name}: longer than a slot, so never served: {of_all(never.too_long)}. Prompt and answer together "
            f"have up to {never.longest_tokens} tokens, and slot_tokens is {cost.slot_tokens}; {never.needed_tokens} "
            f"would hold {100 * never.target:.4g} % of them: serve with so many (--slot-tokens) and measure again, "
            "or lower --target."
        )
    if never.too_slow:
        lines.append(
            f"{cost.name}: over their limits even on an idle node: {of_all(never.too_slow)}. They need a longer "
            "--deadline-ms or --first-token-ms, or a node with quicker steps."
        )
    return "\n".join(lines)


_COUNTS = ["met", "booked", "missed", "refused", "infeasible"]
_HEADER = ["hardware", "speed", "slots", "nodes", *_COUNTS, "busy", "per hour", "per 1000", "per served"]


def _rows(plans: list[Plan]) -> list[list[str]]:
    rows = [_HEADER]
    for plan in plans:
        outcome, head = plan.outcome, [plan.cost.name, f"{plan.speed:g}", str(plan.cost.slots)]
        if outcome is None:
            rows.append([*head, "no number of nodes reaches the target", *[""] * (len(_HEADER) - 4)])
            continue
        shares = [f"{getattr(outcome, name) / max(1, outcome.arrivals):.2%}" for name in _COUNTS]
        prices = (outcome.price_per_hour, outcome.price_per_1000_tokens, outcome.price_per_served)
        rows.append([*head, str(outcome.nodes), *shares, f"{outcome.utilisation:.1%}", *map(number, prices)])
    return rows


def _json(plans: list[Plan], never: list[Unservable]) -> str:
    outcomes = []
    for plan in plans:
        outcome, entry = plan.outcome, {"hardware": plan.cost.name, "speed": plan.speed, "slots": plan.cost.slots}
        if outcome is None:
            outcomes.append(entry | {"nodes": None})
            continue
        counts = {name: getattr(outcome, name) for name in ("nodes", "arrivals", *_COUNTS, "utilisation", "hours")}
        prices = {
            "price": outcome.price,
            "price_per_hour": outcome.price_per_hour,
            "price_per_1000_tokens": finite(outcome.price_per_1000_tokens),
            "price_per_served": finite(outcome.price_per_served),
        }
        outcomes.append(entry | counts | prices)
    unserved = [
        {
            "hardware": each.cost.name,
            "slots": each.cost.slots,
            "too_long": each.too_long,
            "longest_tokens": each.longest_tokens,
            "needed_slot_tokens": each.needed_tokens,
            "too_slow": each.too_slow,
        }
        for each in never
    ]
    return msgspec.json.encode({"version": VERSION, "outcomes": outcomes, "never_served": unserved}).decode()


def _page(options: SimulateOptions, plans: list[Plan], limits: Rules, never: list[Unservable]) -> str:
    """The table; what a share served costs, hardware beside hardware; and each plan by its number of nodes."""
    curves = {title: _curve(plans, plan, limits) for title, plan in {_title(each): each for each in plans}.items()}
    figures = []
    priced = {
        title: (curve.nodes * curve.cost.price_per_hour, curve.served)
        for title, curve in curves.items()
        if curve.cost.price_per_hour > 0
    }
    if priced:
        chart = charts.shares(priced, "price per hour", "% served in time")
        figures.append(figure("By price", legend(list(priced)), chart))
    for title, curve in curves.items():
        lines = {"served in time": (curve.nodes, curve.served), "at once": (curve.nodes, curve.met)}
        chart = charts.shares(lines, "nodes", "% of requests", curve.nodes.tolist())
        figures.append(figure(title, legend(list(lines)), chart))
    best = _cheapest(options, plans)
    parts = [f'<div class="verdict good">{escape(best)}</div>'] if best else []
    parts += [f"<p>{escape(line)}</p>" for each in never for line in _reason(each).splitlines()]
    parts += [table(_rows(plans)), f'<div class="grid2">{"".join(figures)}</div>']
    deadline = "the contract's" if options.deadline_ms is None else f"{options.deadline_ms:.0f} ms"
    trace = Path(options.trace or "").name
    return page(f"Fleet for {trace}, {len(plans[0].work.at_ms)} requests, deadline {deadline}", "".join(parts))


def _cheapest(options: SimulateOptions, plans: list[Plan]) -> str:
    """What reaches the target for the least, of several kinds of node that have a price; else nothing."""
    found = [(plan, plan.outcome) for plan in plans if plan.outcome is not None and plan.cost.price_per_hour > 0]
    if options.nodes or len(found) < 2 or len(options.speeds) > 1:
        return ""
    plan, outcome = min(found, key=lambda each: each[1].price_per_hour)
    nodes = "1 node" if outcome.nodes == 1 else f"{outcome.nodes} nodes"
    price = number(outcome.price_per_hour)
    return f"{100 * options.target:.4g} % in time for the least: {_title(plan)}, {nodes}, {price} an hour"


def _title(plan: Plan) -> str:
    parts = [plan.cost.name, f"{plan.cost.slots} slots"]
    return ", ".join(parts if plan.speed == 1 else [*parts, f"speed {plan.speed:g}"])


@dataclass(frozen=True)
class _Curve:
    """Percentages of requests by number of nodes."""

    cost: Cost
    nodes: Floats
    served: Floats
    met: Floats


def _curve(plans: list[Plan], plan: Plan, limits: Rules) -> _Curve:
    """Around the numbers of nodes that were tried."""
    tried = [p.outcome.nodes for p in plans if p.outcome and (p.cost, p.speed) == (plan.cost, plan.speed)]
    most = max([1, *tried])
    nodes = np.unique(np.round(np.geomspace(max(1, most / 2), max(3, 1.5 * most), CURVE)))
    seen = [simulate(plan.work, plan.cost, int(count), limits) for count in nodes]
    return _Curve(
        plan.cost,
        nodes,
        np.array([100 * each.served_share for each in seen]),
        np.array([100 * each.met / max(1, each.arrivals) for each in seen]),
    )
