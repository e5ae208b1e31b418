"""What a client knows of the service that it asks: its nodes, its budget of retries, what became of its calls."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from zerolayer.client.address import Address, Patience, check_key
from zerolayer.client.call import Call
from zerolayer.client.discovery import Discovery, is_plain
from zerolayer.client.errors import InvalidAddress
from zerolayer.client.forms import Ask
from zerolayer.client.nodes import Nodes
from zerolayer.client.peers import Peer
from zerolayer.client.retry import NS_PER_MS, RetryBudget, RetryPolicy
from zerolayer.client.statistics import Tally
from zerolayer.client.waiters import Waiters
from zerolayer.wire.load import Load

NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True)
class Clocks:
    """Monotonic time and Unix time, both in nanoseconds, and how to wait for so many seconds."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall_ns: Callable[[], int] = time.time_ns
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


@dataclass(frozen=True)
class Limits:
    """``timeout_s`` bounds each wait for bytes, ``answer_within_s`` each wait for a reply to begin (None: the same).

    ``retry_budget_ms`` is the time from a call to its last retry. ``hedge_after_ms``: when a second node is asked
    beside one that has not begun to answer; None: never.
    """

    timeout_s: float = 600.0
    answer_within_s: float | None = None
    retry_budget_ms: int = 60_000
    hedge_after_ms: float | None = None


@dataclass(frozen=True)
class Going:
    """One call under way. ``begun_ns`` is when it began, ``end_ns`` its deadline; both are monotonic."""

    call: Call
    ask: Ask
    begun_ns: int
    end_ns: int | None


class Service:
    """The state that all calls of one client share. One event loop writes it.

    ``urls`` is one address or several, of nodes or of sources that name them; all nodes are shown ``key``, unless it is
    empty. ``follow_nodes``: whether others are taken over from the nodes' own list. Raises ``InvalidAddress``.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        key: str,
        limits: Limits,
        policy: RetryPolicy,
        clocks: Clocks,
        *,
        follow_nodes: bool = True,
    ) -> None:
        self._key = key
        check_key(key)
        texts = [urls] if isinstance(urls, str) else urls
        if not texts:
            raise InvalidAddress("There is no address. Name at least one, such as http://127.0.0.1:8000.")
        self._given = [Address.parse(text, key) for text in texts if is_plain(text)]
        sources = [text for text in texts if not is_plain(text)]
        self._addresses = {str(address): address for address in self._given}
        self.nodes = Nodes(list(self._addresses))
        self.waiters = Waiters(self.nodes)
        self._discovery = Discovery(sources, self.found, clocks.monotonic_ns) if sources else None
        self.tally = Tally()
        self.clocks = clocks
        self.limits = limits
        self._follow_nodes = follow_nodes
        self.speaks_schema: bool | None = None  # None: nobody has answered yet
        self._secure = all(address.scheme == "https" for address in self._given)
        self._epoch = 0
        self._gone: list[Address] = []
        self._policy = policy
        self._budget = RetryBudget(policy)
        self._chance = random.Random().random

    def end_of(self, deadline_ms: float | None) -> int | None:
        """The monotonic time at which a call that comes now is over."""
        return None if deadline_ms is None else self.clocks.monotonic_ns() + int(deadline_ms * NS_PER_MS)

    def begin(self, ask: Ask, begun_ns: int, end_ns: int | None) -> Going:
        """A call, which came at ``begun_ns``, goes to the nodes."""
        last_ns = begun_ns + self.limits.retry_budget_ms * NS_PER_MS
        last_ns = last_ns if end_ns is None else min(end_ns, last_ns)
        call = Call(self.nodes, self._policy, self._budget, self.tally, self._chance, end_ns=last_ns, prefix=ask.prefix)
        return Going(call, ask, begun_ns, end_ns)

    def begin_anew(self, going: Going, ask: Ask) -> Going:
        """The same call in other words, as nothing came of the first ones: it is counted once."""
        self.tally.add("calls", -1)
        self.tally.add("failed", -1)
        return self.begin(ask, going.begun_ns, going.end_ns)

    def headers(self, going: Going, ticket: str | None) -> dict[str, str]:
        """The headers of one attempt. What is left of a deadline travels along, so that the server can keep it.

        So does how often the call has waited: a server sends nobody to the end again who has, and takes nobody who has
        not for the one whose words are the same.
        """
        headers = {**going.ask.headers, "x-zl-retry-count": str(going.call.told_waits)}
        if going.end_ns is not None:
            left_ms = (going.end_ns - self.clocks.monotonic_ns()) // NS_PER_MS
            headers["x-zl-deadline-ms"] = str(max(1, left_ms))
        if ticket is not None:
            headers["x-zl-ticket"] = ticket
        return headers

    def heard(self, headers: Mapping[str, str]) -> bool:
        """Somebody answered; whether it was zerolayer. The schema is spoken while everybody who answers knows it."""
        own = headers.get("server", "").startswith("zerolayer/")
        self.speaks_schema = own and self.speaks_schema is not False
        return own

    def peers_are_due(self, load: Load | None) -> bool:
        """Whether the list of peers has changed since it was fetched: then it is, once for each number."""
        if not self._follow_nodes or load is None or load.epoch in (0, self._epoch):
            return False
        self._epoch = load.epoch
        return True

    def address(self, name: str) -> Address:
        """Where the node of this name is, and the key to show it."""
        known = self._addresses.get(name)  # one that is forgotten may still be waited for, since it booked a slot
        return Address.parse(name, self._key) if known is None else known

    def take_peers(self, peers: Sequence[Peer]) -> list[Address]:
        """The nodes that there are now; those that are forgotten.

        Addresses that are none, or less safe than the client's own, are left out.
        """
        now_ns, listed = self.clocks.monotonic_ns(), []
        for peer in peers:
            try:
                address = Address.parse(peer.url, self._key)
            except InvalidAddress:
                continue
            if address.scheme == "https" or not self._secure:
                self._addresses.setdefault(str(address), address)
                listed.append((str(address), peer))
        if not listed:
            return []
        gone = self.nodes.update([name for name, _ in listed], now_ns)
        for name, peer in listed:
            if peer.load is not None:
                self.nodes.told(name, now_ns - peer.age_ns, peer.load)
        return [self._addresses.pop(name) for name in gone if name in self._addresses]

    async def ready(self, end_ns: int | None) -> None:
        """Some node is known. Raises ``NotReachable`` where the sources name none, ``DeadlinePassed``."""
        if self._discovery is not None and not len(self.nodes):
            await self._discovery.ready(self.between(end_ns))

    def refresh(self) -> list[Address]:
        """Take over what the sources named lately, and have them asked again where it is time to.

        Returns the nodes that are forgotten.
        """
        if self._discovery is None:
            return []
        self._discovery.refresh()
        gone, self._gone = self._gone, []
        return gone

    def found(self, urls: Sequence[str]) -> None:
        """What the sources name now. Where the nodes tell of one another, these are for when none of those is left."""
        known = {str(address): address for address in (*self._given, *self._parsed(urls))}
        for name, address in known.items():
            self._addresses.setdefault(name, address)
        self._secure = all(address.scheme == "https" for address in known.values())
        gone = self.nodes.give(list(known), self.clocks.monotonic_ns(), listed=self._epoch == 0)
        self._gone += [self._addresses.pop(name) for name in gone if name in self._addresses]

    def _parsed(self, urls: Sequence[str]) -> Iterator[Address]:
        """Those that are addresses."""
        for url in urls:
            with suppress(InvalidAddress):
                yield Address.parse(url, self._key)

    def until_answer(self, end_ns: int | None) -> Patience:
        """How long to wait for the head of a reply."""
        within_s = self.limits.answer_within_s
        return Patience(within_s or self.limits.timeout_s, end_ns, self.clocks.monotonic_ns)

    def between(self, end_ns: int | None) -> Patience:
        """How long to wait for the next bytes of a reply."""
        return Patience(self.limits.timeout_s, end_ns, self.clocks.monotonic_ns)
