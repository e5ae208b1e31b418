"""Plans a fleet: a trace of arrivals against nodes of known cost, without running any.

Every node decides as the server does (``simulated_node.py``). A request goes to the next node with a free slot, or to
the one whose slot is free first; a refused one comes back there at the promised time, as often as stock clients do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerolayer.check.cost_table import Cost
from zerolayer.check.simulated_node import SERVED, Rules, Seen, Steps, fleet, node, settled
from zerolayer.check.statistics import Floats
from zerolayer.check.trace import Arrival
from zerolayer.contract import Deadline
from zerolayer.errors import UsageError

MS = 1_000_000
MAX_NODES = 100_000
_AT_ONCE = 10_000  # requests between two looks for a ^C


@dataclass(frozen=True)
class Demand:
    """Arrivals in ms, ascending, with the tokens of each request."""

    at_ms: Floats
    prompt_tokens: Floats
    output_tokens: Floats


@dataclass(frozen=True)
class Outcome:
    """What became of a demand on ``nodes`` of one kind. Counts are requests; shares of all arrivals are derived."""

    cost: Cost
    nodes: int
    arrivals: int
    met: int  # started at once, ended in time
    booked: int  # refused at first, then served in time
    missed: int  # started, but not ended in time
    refused: int  # for good
    infeasible: int  # longer than a slot, or than the limits allow on an idle node
    utilisation: float
    hours: float
    tokens: int  # of answers that were met or booked

    @property
    def served_share(self) -> float:
        """Requests that ended in time, of all."""
        return (self.met + self.booked) / max(1, self.arrivals)

    @property
    def price_per_hour(self) -> float:
        return self.nodes * self.cost.price_per_hour

    @property
    def price(self) -> float:
        return self.price_per_hour * self.hours

    @property
    def price_per_1000_tokens(self) -> float:
        return 1000 * self.price / self.tokens if self.tokens else math.nan

    @property
    def price_per_served(self) -> float:
        return self.price / (self.met + self.booked) if self.met + self.booked else math.nan


@dataclass(frozen=True)
class Unservable:
    """Requests of a demand that no number of nodes of one kind serves, and slots that would hold a target's share."""

    cost: Cost
    arrivals: int
    too_long: int  # prompt and answer are more than ``slot_tokens``
    longest_tokens: int
    too_slow: int  # fit a slot, and take longer than the limits allow on an idle node
    target: float
    needed_tokens: int  # the least ``slot_tokens`` that hold so many requests

    @property
    def share(self) -> float:
        """Of all requests."""
        return (self.too_long + self.too_slow) / max(1, self.arrivals)


def demand(arrivals: list[Arrival]) -> Demand:
    """A trace as arrays."""
    columns = np.array([(each.at_ms, each.prompt_tokens, each.output_tokens) for each in arrivals], dtype=np.float64).T
    return Demand(*columns)


def rules(
    deadline_ms: float | None = None, first_token_ms: float | None = None, *, senders: int = 0, retries: int = 2
) -> Rules:
    """Limits of every request in ms; None = what a server's contract says by default.

    A deadline holds for all attempts of a request together, what the contract says for each.
    """
    contract = Deadline()
    return Rules(
        first_token_ns=round((contract.first_token_ms if first_token_ms is None else first_token_ms) * MS),
        per_token_ns=contract.per_token_ms * MS,
        end_ns=round((contract.default_ms if deadline_ms is None else deadline_ms) * MS),
        horizon_ns=contract.horizon_ms * MS,
        grace_ns=contract.grace_ms * MS,
        patient=deadline_ms is not None,
        senders=senders,
        retries=retries,
    )


def steps(cost: Cost) -> Steps:
    """A cost table as a node needs it."""
    return settled(cost.slots, cost.chunk_tokens, round(cost.decode_ms * MS), round(cost.mixed_ms * MS))


def durations_ms(cost: Cost, work: Demand) -> Floats:
    """How long each request holds a slot of an idle node: the chunks of its prompt, a step for every further token."""
    return _chunks(cost, work) * cost.mixed_ms + np.maximum(0, work.output_tokens - 1) * cost.decode_ms


def _chunks(cost: Cost, work: Demand) -> Floats:
    return np.ceil(np.maximum(work.prompt_tokens, 1) / cost.chunk_tokens)


def simulate(work: Demand, cost: Cost, nodes: int, limits: Rules | None = None) -> Outcome:
    """Run the demand through ``nodes``, with the limits of a server's default contract unless ``limits`` say else."""
    return _simulate(work, cost, nodes, limits or rules(), len(work.at_ms))


def _simulate(work: Demand, cost: Cost, nodes: int, limits: Rules, most_unserved: int) -> Outcome:
    """The outcome; what had become of them by then, as soon as more than that are refused for good."""
    fits = work.prompt_tokens + work.output_tokens <= cost.slot_tokens
    chunks = _chunks(cost, work)[fits].astype(np.int64).tolist()
    tokens = np.maximum(work.output_tokens[fits], 1).astype(np.int64).tolist()
    arrivals = np.round(work.at_ms[fits] * MS).astype(np.int64).tolist()
    model = steps(cost)
    if chunks and not model.bear(max(chunks), max(tokens)):
        raise UsageError(f"{cost.name} needs more than a year for one request of this trace: its steps are too long.")
    made = fleet(nodes, model, limits, chunks, tokens)
    for first in range(0, len(arrivals), _AT_ONCE):
        if not made.send(arrivals[first : first + _AT_ONCE], first, most_unserved):
            break
    return _outcome(work, cost, nodes, made.finish(), int(np.count_nonzero(~fits)))


def _outcome(work: Demand, cost: Cost, nodes: int, seen: Seen, too_long: int) -> Outcome:
    span_ms = max(float(work.at_ms[-1]), seen.last_ns / MS) or 1.0
    return Outcome(
        cost,
        nodes,
        len(work.at_ms),
        seen.at_once,
        seen.booked,
        seen.late,
        seen.refused,
        seen.infeasible + too_long,
        seen.busy_ns / MS / (span_ms * cost.slots * nodes),
        span_ms / 3_600_000,
        seen.tokens,
    )


def find_nodes(work: Demand, cost: Cost, target: float, limits: Rules | None = None) -> Outcome | None:
    """The fewest nodes that serve a share of ``target`` in time; None if no number does, as work is too long."""
    limits = limits or rules()
    low = _too_few(work, cost, target, limits)
    high, most = low + 1, int((1 - target) * len(work.at_ms))
    never = unservable(work, cost, target, limits)
    if never.too_long + never.too_slow > most:
        return None

    def enough(nodes: int) -> Outcome | None:
        seen = _simulate(work, cost, nodes, limits, most)
        return seen if seen.served_share >= target else None

    while (outcome := enough(high)) is None:
        if high >= min(MAX_NODES, 2 * len(work.at_ms)):
            return None
        low, high = high, min(high + max(1, high // 2), MAX_NODES)
    while high - low > 1:
        middle = (low + high) // 2
        tried = enough(middle)
        if tried is not None:
            high, outcome = middle, tried
        else:
            low = middle
    return outcome


def unservable(work: Demand, cost: Cost, target: float, limits: Rules | None = None) -> Unservable:
    """What is infeasible even alone on a node: too long for a slot, or too slow for its limits."""
    limits, total = limits or rules(), work.prompt_tokens + work.output_tokens
    fits = total <= cost.slot_tokens
    model, chunks = steps(cost), _chunks(cost, work).astype(np.int64)
    kinds, counts = np.unique(
        np.array([chunks, np.maximum(work.output_tokens, 1)], dtype=np.int64)[:, fits], axis=1, return_counts=True
    )
    lone = [node(model, limits, [int(kind[0])], [int(kind[1])]).offer(0, 0)[0] for kind in kinds.T]
    held = max(1, math.ceil(target * len(total)))
    return Unservable(
        cost,
        len(total),
        int(np.count_nonzero(~fits)),
        int(total.max()),
        int(counts[[fate != SERVED for fate in lone]].sum()),
        target,
        int(np.sort(total)[held - 1]),
    )


def _too_few(work: Demand, cost: Cost, target: float, limits: Rules) -> int:
    """A number of nodes whose slots have not enough time for the shortest requests that make up ``target``."""
    shortest = np.sort(durations_ms(cost, work))[: math.floor(target * len(work.at_ms))]
    tries = 1 if limits.patient else 1 + limits.retries
    room_ms = float(work.at_ms[-1]) + tries * (limits.end_ns + limits.horizon_ns) / MS
    return int(float(shortest.sum()) / (room_ms * cost.slots) * 0.999)
