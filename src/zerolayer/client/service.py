"""What a client knows of the service that it asks: its nodes, its budget of retries, what became of its calls."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from zerolayer.client.address import Address, Patience
from zerolayer.client.call import Call
from zerolayer.client.nodes import Nodes
from zerolayer.client.request import Ask
from zerolayer.client.retry import NS_PER_MS, RetryBudget, RetryPolicy
from zerolayer.client.statistics import Tally

NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True)
class Clocks:
    """Monotonic time, and Unix time, both in nanoseconds."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall_ns: Callable[[], int] = time.time_ns


@dataclass(frozen=True)
class Limits:
    """``timeout_s`` bounds each wait for bytes, ``answer_within_s`` each wait for a reply to begin (None: the same).

    ``retry_budget_ms`` is the time from a call to its last retry.
    """

    timeout_s: float = 600.0
    answer_within_s: float | None = None
    retry_budget_ms: int = 60_000


@dataclass(frozen=True)
class Going:
    """One call under way. ``begun_ns`` is when it began, ``end_ns`` its deadline; both are monotonic."""

    call: Call
    ask: Ask
    begun_ns: int
    end_ns: int | None


class Service:
    """The state that all calls of one client share. ``lock`` is held around whatever touches it.

    ``urls`` is one address or several; all are shown ``key``, unless it is empty. Raises ``InvalidAddress``.
    """

    def __init__(
        self, urls: str | Sequence[str], key: str, limits: Limits, policy: RetryPolicy, clocks: Clocks
    ) -> None:
        addresses = [Address.parse(url, key) for url in ([urls] if isinstance(urls, str) else urls)]
        self.addresses = {str(address): address for address in addresses}
        self.nodes = Nodes(list(self.addresses))
        self.tally = Tally()
        self.lock = threading.RLock()
        self.clocks = clocks
        self._limits = limits
        self._policy = policy
        self._budget = RetryBudget(policy)
        self._chance = random.Random().random

    def begin(self, ask: Ask, deadline_ms: float | None) -> Going:
        """A call begins."""
        now_ns = self.clocks.monotonic_ns()
        end_ns = None if deadline_ms is None else now_ns + int(deadline_ms * NS_PER_MS)
        last_ns = now_ns + self._limits.retry_budget_ms * NS_PER_MS
        last_ns = last_ns if end_ns is None else min(end_ns, last_ns)
        with self.lock:
            call = Call(
                self.nodes, self._policy, self._budget, self.tally, self._chance, end_ns=last_ns, prefix=ask.prefix
            )
        return Going(call, ask, now_ns, end_ns)

    def request(self, going: Going, node: str, ticket: str | None) -> bytes:
        """The bytes of one attempt. What is left of a deadline travels along, so that the server can keep it."""
        headers: dict[str, str] = {}
        if going.end_ns is not None:
            left_ms = (going.end_ns - self.clocks.monotonic_ns()) // NS_PER_MS
            headers["x-zl-deadline-ms"] = str(max(1, left_ms))
        if ticket is not None:
            headers["x-zl-ticket"] = ticket
        return self.addresses[node].request("POST", going.ask.path, headers, going.ask.body)

    def until_answer(self, end_ns: int | None) -> Patience:
        """How long to wait for the head of a reply."""
        within_s = self._limits.answer_within_s
        return Patience(within_s or self._limits.timeout_s, end_ns, self.clocks.monotonic_ns)

    def between(self, end_ns: int | None) -> Patience:
        """How long to wait for the next bytes of a reply."""
        return Patience(self._limits.timeout_s, end_ns, self.clocks.monotonic_ns)
