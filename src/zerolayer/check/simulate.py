"""Plans a fleet: a trace of arrivals against nodes of known cost, without running any. Pure functions over arrays.

A request takes the first free slot of the fleet at once, or is refused with the time of the first that will be free,
which is held for it; it is refused for good when it could not end within its deadline then. The fleet is taken to send
every request to its best node: what a real balancer loses comes on top.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from zerolayer.check.errors import InputFileError
from zerolayer.check.statistics import Floats
from zerolayer.check.trace import Arrival

MAX_NODES = 100_000


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's cost table, measured or given: step times at full occupancy, and the price."""

    name: str
    slots: int
    decode_ms: float  # a step in which every slot brings one token
    mixed_ms: float  # the same step with a chunk of a prompt
    chunk_tokens: int
    slot_tokens: int
    price_per_hour: float = 0.0


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
    booked: int  # refused at first, served at the booked time, ended in time
    missed: int  # served, but past the deadline: it alone is longer
    refused: int  # for good, at once
    infeasible: int  # longer than a slot
    utilisation: float
    hours: float
    tokens: int  # of answers that were met or booked

    @property
    def served_share(self) -> float:
        """Requests that ended in time, of all."""
        return (self.met + self.booked) / max(1, self.arrivals)

    @property
    def price(self) -> float:
        return self.nodes * self.cost.price_per_hour * self.hours

    @property
    def price_per_1000_tokens(self) -> float:
        return 1000 * self.price / self.tokens if self.tokens else math.nan

    @property
    def price_per_served(self) -> float:
        return self.price / (self.met + self.booked) if self.met + self.booked else math.nan


def read_cost(path: Path) -> Cost:
    """A cost table from a TOML file. Raises ``InputFileError``."""
    try:
        cost = msgspec.toml.decode(path.read_bytes(), type=Cost)
    except OSError as error:
        raise InputFileError(f"{path.name} cannot be read ({type(error).__name__}). Check the file's name.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        fields = ", ".join(Cost.__struct_fields__)
        raise InputFileError(f"{path.name} is no cost table. It is TOML with {fields}.") from None
    positive = (cost.slots, cost.decode_ms, cost.mixed_ms, cost.chunk_tokens, cost.slot_tokens)
    if not all(0 < value < math.inf for value in positive) or not 0 <= cost.price_per_hour < math.inf:
        raise InputFileError(f"{path.name} holds a value that is not above 0. Only the price may be 0.")
    return cost


def demand(arrivals: list[Arrival]) -> Demand:
    """A trace as arrays."""
    columns = np.array([(each.at_ms, each.prompt_tokens, each.output_tokens) for each in arrivals], dtype=np.float64).T
    return Demand(*columns)


def durations_ms(cost: Cost, work: Demand) -> Floats:
    """How long each request holds its slot: its prompt's chunks, then a step for every token after the first.

    The same count of steps as in the server's own prediction, without its margin and without the chunks of others.
    """
    chunks = np.ceil(np.maximum(work.prompt_tokens, 1) / cost.chunk_tokens)
    return chunks * cost.mixed_ms + np.maximum(0, work.output_tokens - 1) * cost.decode_ms


def simulate(work: Demand, cost: Cost, nodes: int, deadline_ms: float = math.inf, *, book: bool = True) -> Outcome:
    """Run the demand through ``nodes``. Without ``book`` a refused request never comes back."""
    lengths = durations_ms(cost, work)
    fits = work.prompt_tokens + work.output_tokens <= cost.slot_tokens
    free = [0.0] * (cost.slots * nodes)  # equal values are a heap
    replace = heapq.heapreplace
    met = booked = refused = missed = 0
    busy_ms = tokens = end_ms = 0.0
    rows = zip(work.at_ms[fits].tolist(), lengths[fits].tolist(), work.output_tokens[fits].tolist(), strict=True)
    for at, length, answer in rows:
        first = free[0]
        if first <= at:
            replace(free, at + length)
            if length > deadline_ms:
                missed += 1
            else:
                met += 1
                tokens += answer
            end_ms = max(end_ms, at + length)
        elif book and first + length - at <= deadline_ms:
            replace(free, first + length)
            booked += 1
            tokens += answer
            end_ms = max(end_ms, first + length)
        else:
            refused += 1
            continue
        busy_ms += length
    span_ms = max(end_ms, float(work.at_ms[-1])) or 1.0
    return Outcome(
        cost,
        nodes,
        len(work.at_ms),
        met,
        booked,
        missed,
        refused,
        int(np.count_nonzero(~fits)),
        busy_ms / (span_ms * cost.slots * nodes),
        span_ms / 3_600_000,
        int(tokens),
    )


def find_nodes(work: Demand, cost: Cost, target: float, deadline_ms: float) -> Outcome | None:
    """The fewest nodes that serve a share of ``target`` in time; None if no number does, as work is too long."""
    high = 1
    while (outcome := simulate(work, cost, high, deadline_ms)).served_share < target:
        if outcome.refused == 0 or high >= MAX_NODES:
            return None
        high = min(2 * high, MAX_NODES)
    low = high // 2  # known to be too few, or 0
    while high - low > 1:
        middle = (low + high) // 2
        if simulate(work, cost, middle, deadline_ms).served_share >= target:
            high = middle
        else:
            low = middle
    return simulate(work, cost, high, deadline_ms)
