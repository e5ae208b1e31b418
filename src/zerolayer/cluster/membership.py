"""Who else is there, by what each node says of itself. Pure: no clock, no sockets, no threads.

Every node keeps such a list and none is its seed: addresses come from the operator's sources, from nodes that announce
themselves, and from the lists of nodes that are trusted: those that the operator named, and those that proved to be
nodes when they announced themselves. So a stranger can announce himself where nobody needs a key, and nobody else. An
address that somebody else named is told on only once it has answered. What a list says of a node is what that node
said itself, when it was last asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Final

import msgspec

from zerolayer.contract_cluster import ADDRESS

MISSES: Final = 3  # answers that do not come, one after the other, before a node is taken for away
ASK_NS: Final = 1_000_000_000
AGAIN_NS: Final = 250_000_000  # after a miss
SHARE_NS: Final = 50_000_000  # of a second for each node: no more than 20 questions a second, however many there are
FORGET_NS: Final = 60_000_000_000  # a node that was only heard of is forgotten when it was away for so long
MOST: Final = 1000  # nodes that are kept in mind
_ADDRESS: Final = re.compile(ADDRESS)


class State(Enum):
    """What is known of a node."""

    UNHEARD = "unheard"  # it has never answered
    READY = "ready"  # it takes work
    UNREADY = "unready"  # it answers, and takes no work: it starts, drains, or its device is in quarantine
    AWAY = "away"  # it does not answer


LIVING: Final = (State.READY.value, State.UNREADY.value)  # they answer


class Event(Enum):
    """What became of a question."""

    READY = "ready"
    UNREADY = "unready"
    MISSED = "missed"
    LOST = "lost"  # the last of ``MISSES`` in a row


TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.UNHEARD, Event.READY): State.READY,
    (State.UNHEARD, Event.UNREADY): State.UNREADY,
    (State.UNHEARD, Event.MISSED): State.UNHEARD,
    (State.UNHEARD, Event.LOST): State.UNHEARD,
    (State.READY, Event.READY): State.READY,
    (State.READY, Event.UNREADY): State.UNREADY,
    (State.READY, Event.MISSED): State.READY,
    (State.READY, Event.LOST): State.AWAY,
    (State.UNREADY, Event.READY): State.READY,
    (State.UNREADY, Event.UNREADY): State.UNREADY,
    (State.UNREADY, Event.MISSED): State.UNREADY,
    (State.UNREADY, Event.LOST): State.AWAY,
    (State.AWAY, Event.READY): State.READY,
    (State.AWAY, Event.UNREADY): State.UNREADY,
    (State.AWAY, Event.MISSED): State.AWAY,
    (State.AWAY, Event.LOST): State.AWAY,
}


class Listed(msgspec.Struct, frozen=True):
    """A node as ``GET /v1/nodes`` tells of it. ``age_ms``: how old its word is; -1 when it never said anything.

    ``free``, ``next_ms`` and ``derate`` are those of its ``x-zl-load``.
    """

    address: str
    state: str
    model: str = ""
    slots: int = 0
    free: int = 0
    next_ms: int = 0
    derate: float = 1.0
    age_ms: int = -1


class NodeList(msgspec.Struct, frozen=True):
    """The body of ``GET /v1/nodes``. ``self`` is the node that answers; ``epoch`` changes whenever the list does."""

    epoch: int
    self: str
    nodes: tuple[Listed, ...]
    version: int = 1


@dataclass
class Peer:
    """One address that is asked. ``says`` is what the node there calls itself; ``named`` by the operator.

    ``proven``: it announced itself with a node's key or a certificate.
    """

    dial: str
    named: bool
    proven: bool = False
    says: str = ""
    state: State = State.UNHEARD
    misses: int = 0
    told_ns: int | None = None
    since_ns: int = 0
    due_ns: int = 0
    asking: bool = False
    word: Listed = field(default_factory=lambda: Listed("", ""))

    @property
    def address(self) -> str:
        """Under which clients reach it."""
        return self.says or self.dial

    @property
    def trusted(self) -> bool:
        """Whether others are asked because it tells of them."""
        return self.named or self.proven

    def line(self, now_ns: int) -> Listed:
        """What the list says of it."""
        age_ms = -1 if self.told_ns is None else (now_ns - self.told_ns) // 1_000_000
        return msgspec.structs.replace(self.word, address=self.address, state=self.state.value, age_ms=age_ms)


class Membership:
    """The list of one node, whose own address is ``own``. Times are monotonic nanoseconds. One writer."""

    def __init__(self, own: str) -> None:
        self.own = own
        self._peers: dict[str, Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def name(self, addresses: Iterable[str], now_ns: int) -> None:
        """What the operator's sources say now: these are asked for good, the named ones of before as if heard of."""
        wanted = dict.fromkeys(_clean(addresses))
        for peer in self._peers.values():
            peer.named = peer.dial in wanted
        for dial in wanted:
            self._add(dial, now_ns, named=True)

    def hear(self, addresses: Iterable[str], now_ns: int, *, proven: bool = False) -> None:
        """Addresses that other nodes told of, or that announced themselves, ``proven`` to be a node's."""
        known = {peer.says for peer in self._peers.values()}
        for dial in _clean(addresses):
            if dial not in known:
                self._add(dial, now_ns, named=False)
            if proven and dial in self._peers:
                self._peers[dial].proven = True

    def next_ns(self) -> int | None:
        """When somebody should be asked next; None when nobody, or all are being asked."""
        return min((peer.due_ns for peer in self._peers.values() if not peer.asking), default=None)

    def due(self, now_ns: int) -> list[Peer]:
        """Whom to ask now; each then gets one of ``answered`` and ``missed``."""
        due = [peer for peer in self._peers.values() if not peer.asking and now_ns >= peer.due_ns]
        for peer in due:
            peer.asking = True
        return due

    def answered(self, dial: str, now_ns: int, says: str, word: Listed, *, ready: bool) -> None:
        """The node said what it is called and how it is."""
        peer = self._peers.get(dial)
        if peer is None:
            return
        if peer.named:  # the others are asked under the name that they told themselves, and could take another's
            peer.says = says if _ADDRESS.fullmatch(says) else ""
        peer.word, peer.told_ns, peer.misses = word, now_ns, 0
        self._move(peer, Event.READY if ready else Event.UNREADY, now_ns)
        peer.due_ns = now_ns + self._pause_ns

    def missed(self, dial: str, now_ns: int) -> None:
        """Nothing came, or nothing that a node would say."""
        peer = self._peers.get(dial)
        if peer is None:
            return
        peer.misses += 1
        self._move(peer, Event.MISSED if peer.misses < MISSES else Event.LOST, now_ns)
        peer.due_ns = now_ns + (AGAIN_NS if peer.misses < MISSES else self._pause_ns)

    def forget(self, now_ns: int) -> None:
        """Drop what was only heard of and has been silent for long."""
        for dial, peer in list(self._peers.items()):
            silent = peer.state in (State.AWAY, State.UNHEARD)
            if not peer.named and silent and now_ns - peer.since_ns >= FORGET_NS:
                del self._peers[dial]

    def listed(self, now_ns: int, own: Listed) -> NodeList:
        """The list, each node once, in the order of the addresses; ``own`` is what this node says of itself."""
        heard = sorted(self._peers.values(), key=lambda peer: -1 if peer.told_ns is None else peer.told_ns)
        nodes = {peer.address: peer.line(now_ns) for peer in heard if peer.named or peer.told_ns is not None}
        nodes[self.own] = own
        ordered = tuple(nodes[address] for address in sorted(nodes))
        return NodeList(epoch_of(ordered), self.own, ordered)

    @property
    def _pause_ns(self) -> int:
        return max(ASK_NS, SHARE_NS * len(self._peers))

    def _add(self, dial: str, now_ns: int, *, named: bool) -> None:
        if dial in self._peers:
            self._peers[dial].named = self._peers[dial].named or named
        elif dial != self.own and (named or len(self._peers) < MOST):
            self._peers[dial] = Peer(dial, named, since_ns=now_ns, due_ns=now_ns)

    def _move(self, peer: Peer, event: Event, now_ns: int) -> None:
        peer.asking = False
        state = TABLE[peer.state, event]
        if state is not peer.state:
            peer.state, peer.since_ns = state, now_ns


def epoch_of(nodes: Sequence[Listed]) -> int:
    """A number that two nodes with the same list have in common: of who answers, and who takes work. 0 = alone.

    Who does not answer is not in it: of nodes that are gone, or never came, the one knows and the other does not.
    """
    if len(nodes) <= 1:
        return 0
    living = [node for node in nodes if node.state in LIVING]
    lines = sorted(f"{node.address} {node.state == State.READY.value}" for node in living)
    return max(1, int.from_bytes(blake2b("\n".join(lines).encode(), digest_size=4).digest()))


def _clean(addresses: Iterable[str]) -> list[str]:
    stripped = [address.rstrip("/") for address in addresses]
    return [address for address in stripped if len(address) <= 300 and _ADDRESS.fullmatch(address)]
