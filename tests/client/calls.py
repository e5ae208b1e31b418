"""Nodes, and calls to them, at a time that only the test moves."""

from __future__ import annotations

from zerolayer.client.attempt import Head
from zerolayer.client.call import Call
from zerolayer.client.nodes import Nodes
from zerolayer.client.retry import NS_PER_MS, RetryBudget, RetryPolicy
from zerolayer.client.statistics import Tally
from zerolayer.wire.load import Load

MS = NS_PER_MS
END = 10_000 * MS
BUSY = Load(0, 1000)


class World:
    """Nodes, and calls to them, at a time that only the test moves."""

    def __init__(self, *names: str, policy: RetryPolicy | None = None) -> None:
        self.nodes = Nodes(names)
        self.policy = policy or RetryPolicy()
        self.budget = RetryBudget(self.policy)
        self.tally = Tally()

    def call(self, end_ns: int = END) -> Call:
        return Call(self.nodes, self.policy, self.budget, self.tally, lambda: 0.5, end_ns=end_ns)

    def busy(self, name: str) -> None:
        self.nodes.sent(name)
        self.nodes.heard(name, 0, BUSY)


def booked(wait_ms: int, ticket: str = "t", load: Load = BUSY) -> Head:
    return Head(429, load=load, wait_ms=wait_ms, retry=True, ticket=ticket)
