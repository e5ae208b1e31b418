"""Nodes on paper: the server's own admission over engines whose steps take constant times.

The rules, the cost table, and how both are handed to what is compiled (``native/simulated_node.hpp``, which has the
same calendar and admission as the server).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zerolayer.guard.deadline._native import Engine, SimulatedFleet, SimulatedNode, SimulatedOutcome
from zerolayer.guard.deadline._native import Rules as NativeRules
from zerolayer.model.cost import CostTable

_OBSERVED: Final = 512  # steps after which a cost table of constant steps has settled
_LONGEST_NS: Final = 1 << 58  # of a request, with all that may wait before it: times are 64 bits

SERVED, REFUSED, INFEASIBLE = 0, 1, 2  # Fate in native/simulated_node.hpp
Seen = SimulatedOutcome


@dataclass(frozen=True)
class Rules:
    """The limits of every request and the calendar's own, in nanoseconds. ``patient``: ``end_ns`` holds for all tries.

    ``senders``: how many clients the requests come from, in turn; 0 = each from its own. ``retries``: how often a
    refused request comes back, at the time that it was told.
    """

    first_token_ns: int
    per_token_ns: int
    end_ns: int
    horizon_ns: int
    grace_ns: int
    patient: bool = False
    senders: int = 0
    retries: int = 2  # as stock SDKs do

    @property
    def native(self) -> NativeRules:
        """The same for what is compiled."""
        limits = (self.first_token_ns, self.per_token_ns, self.end_ns, self.horizon_ns, self.grace_ns)
        return NativeRules(*limits, self.patient, self.senders, self.retries)


@dataclass(frozen=True)
class Steps:
    """What steps take in nanoseconds, without and with a chunk, and how the server prices them."""

    slots: int
    chunk_tokens: int
    decode_ns: int
    mixed_ns: int
    table: CostTable

    @property
    def native(self) -> Engine:
        """The same for what is compiled."""
        prices = self.table.prices()
        chunk_ns = prices.chunk(self.chunk_tokens)
        constant = (prices.step_ns, prices.chunk_ns[-1], prices.reserve_ns, prices.stall_ns, prices.rate)
        return Engine(self.slots, self.decode_ns, self.mixed_ns, chunk_ns, *constant)

    def bear(self, chunks: int, tokens: int) -> bool:
        """Whether times of requests with so many chunks and tokens at most are numbers of 64 bits."""
        return 2 * (self.slots + 1) * (chunks + tokens) * max(self.decode_ns, self.mixed_ns) < _LONGEST_NS


def settled(slots: int, chunk_tokens: int, decode_ns: int, mixed_ns: int) -> Steps:
    """Steps that always take the same, in the cost table of a server that has seen many of them."""
    table = CostTable(slots=slots, chunk_tokens=chunk_tokens)
    for _ in range(_OBSERVED):
        table.observe(decode_rows=slots, elapsed_ns=decode_ns)
        table.observe(decode_rows=slots, prefill_tokens=chunk_tokens, elapsed_ns=mixed_ns)
    return Steps(slots, chunk_tokens, decode_ns, mixed_ns, table)


def node(steps: Steps, rules: Rules, chunks: list[int], tokens: list[int], *, calm: bool = True) -> SimulatedNode:
    """One node. Requests are numbers; ``chunks`` and ``tokens`` hold their work.

    ``calm=False`` decides everything by the calendar.
    """
    return SimulatedNode(steps.native, rules.native, chunks, tokens, calm)


def fleet(nodes: int, steps: Steps, rules: Rules, chunks: list[int], tokens: list[int]) -> SimulatedFleet:
    """``nodes`` of them, before the same requests."""
    return SimulatedFleet(nodes, steps.native, rules.native, chunks, tokens)
