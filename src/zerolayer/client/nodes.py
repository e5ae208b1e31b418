"""Which node to ask: the one that would start first, by what each said of its load. Pure: no clock, no sockets.

A conversation prefers one node, which has its prefix in memory: rendezvous hashing (Thaler and Ravishankar, 1998) with
a load bound (consistent hashing with bounded loads, https://arxiv.org/abs/1608.01350).

A node that failed is looked after beside the calls, so that none of them waits for it: ``to_probe`` names it when its
pause is over, and once it says that it takes work, one call goes there. If that is answered, so do all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from zerolayer.client.quickness import Quickness
from zerolayer.wire.load import Load

NS_PER_MS: Final = 1_000_000
LOAD_BOUND: Final = 1.25  # times the mean of what this client has under way: above it, affinity yields
FRESH_NS: Final = 1_000_000_000  # an older word is no reason to look beyond a booking
GAIN_NS: Final = 20_000_000  # nor is a start that is hardly earlier
FIRST_PAUSE_NS: Final = 50_000_000
LONGEST_PAUSE_NS: Final = 1_000_000_000
OUTAGE_SHARE: Final = 32  # between the two, a node that is back is found within this part of the time it was gone
PROBE_NS: Final = 1_000_000_000  # for a sign of life
FORGET_NS: Final = 60_000_000_000  # one that left the list may come back; after so long nothing is known of it any more


@dataclass
class Node:
    """What is known of one node. ``unheard`` requests are on their way, ``ended`` ones left since ``load`` was told.

    Slots that come free go to the ``pledged`` calls first, which wait for a booking there.
    """

    name: str
    load: Load = field(default_factory=Load)
    told_ns: int | None = None
    asked: bool = False
    running: int = 0
    unheard: int = 0
    ended: int = 0
    pledged: int = 0
    failures: int = 0
    failed_ns: int = 0  # when the first of them was
    out_until_ns: int = 0
    probed_until_ns: int = 0  # until then the answer to a probe may come
    offers_from_ns: int = 0  # it refused somebody though it had a free slot: nobody is woken for it before that
    lives: bool = False  # it said since it failed that it takes work
    probing: bool = False  # a call is on its way to find out
    listed: bool = True  # one of the nodes that there are now, as far as is known
    left_ns: int = 0  # since when it is none of them

    @property
    def spare(self) -> int:
        """Slots that are free, as far as is known, and to which nobody of this client is on the way."""
        return self.load.free + max(0, self.ended - self.pledged) - self.unheard

    def start_in_ns(self, now_ns: int) -> int:
        """How long until a request that is sent now would start, as far as is known."""
        if self.told_ns is None or self.spare > 0:
            return 0
        return max(0, self.told_ns + int(self.load.next_ms * NS_PER_MS / self.load.derate) - now_ns)

    def surely_free(self, now_ns: int) -> bool:
        """Whether it said a moment ago that it has a slot, and nobody of this client is on the way to it."""
        if self.told_ns is None:
            return self.unheard == 0
        return now_ns - self.told_ns <= FRESH_NS and self.spare > 0

    def offered(self, now_ns: int) -> int:
        """Slots that it has by its own word, for calls that would go there now."""
        if now_ns < self.offers_from_ns or not self.usable(now_ns):
            return 0
        if self.failures or not self.asked:
            return int(self.unheard == 0)  # one finds out
        told = self.told_ns is not None and now_ns - self.told_ns <= FRESH_NS
        return max(0, self.load.free - self.unheard) if told else 0

    def is_fresh(self, now_ns: int) -> bool:
        """Whether its start can be told: it said so a moment ago, or was never asked and is taken for free."""
        if self.told_ns is None:
            return self.unheard == 0
        return self.surely_free(now_ns) or (
            now_ns - self.told_ns <= FRESH_NS and self.load.next_ms > 0 and self.start_in_ns(now_ns) > 0
        )

    def usable(self, now_ns: int) -> bool:
        """Whether it may be asked: it answers, or says so and no call is finding that out."""
        return now_ns >= self.out_until_ns and (not self.failures or (self.lives and not self.probing))

    @property
    def awaited(self) -> bool:
        """Whether it is to be asked, again and again, if it is well: it failed, and has not said so since."""
        return self.listed and self.failures > 0 and not self.lives

    def wants_probe(self, now_ns: int) -> bool:
        """Whether nobody has asked lately if it is well again."""
        return self.awaited and now_ns >= max(self.out_until_ns, self.probed_until_ns)

    def may_be_tried(self, now_ns: int) -> bool:
        """Whether a call may go there for want of another node: its pause is over and nobody else is trying it."""
        return now_ns >= self.out_until_ns and not (self.failures and self.probing)

    def failed(self, now_ns: int) -> None:
        """It is left out for a while, the longer the longer it has been gone."""
        if not self.failures:
            self.failed_ns = now_ns
        self.failures += 1
        self.lives = False
        pause_ns = min(LONGEST_PAUSE_NS, max(FIRST_PAUSE_NS, (now_ns - self.failed_ns) // OUTAGE_SHARE))
        self.out_until_ns = max(self.out_until_ns, now_ns + pause_ns)


class Nodes:
    """The nodes of one client, by name, in the order given. One writer at a time. ``names`` are never forgotten.

    ``sent`` begins an attempt, ``heard`` tells of its reply's head, or ``lost`` that there was none; after ``heard``
    comes ``ended``.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._nodes = {name: Node(name) for name in names}
        self._given = frozenset(names)
        self._quickness = Quickness()
        self.known = False  # whether any has ever answered

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def listed(self) -> list[str]:
        """The names of the nodes that there are now."""
        return [node.name for node in self._nodes.values() if node.listed]

    def update(self, names: Sequence[str], now_ns: int) -> list[str]:
        """The nodes that there are now. One that is not among them is asked only where no other one can be.

        Those that left a minute ago, and have nothing under way, are forgotten and returned.
        """
        there = frozenset(names)
        for name in names:
            self._nodes.setdefault(name, Node(name))
        for node in self._nodes.values():
            if node.listed and node.name not in there:
                node.left_ns = now_ns
            node.listed = node.name in there
        gone = [node.name for node in self._nodes.values() if self._is_gone(node, now_ns)]
        for name in gone:
            del self._nodes[name]
            self._quickness.forget(name)
        return gone

    def give(self, names: Sequence[str], now_ns: int, *, listed: bool) -> list[str]:
        """These are never forgotten now, in place of those given before. ``listed``: they are all nodes that there are.

        Returns as ``update``.
        """
        self._given = frozenset(names)
        for name in names:
            self._nodes.setdefault(name, Node(name, listed=False, left_ns=now_ns))
        return self.update(names, now_ns) if listed else []

    def _is_gone(self, node: Node, now_ns: int) -> bool:
        kept = node.listed or node.running > 0 or node.name in self._given
        return not kept and now_ns - node.left_ns >= FORGET_NS

    def told(self, name: str, told_ns: int, load: Load) -> None:
        """Somebody else knows what this node said then; what it said to us since counts more."""
        node = self._nodes[name]
        if node.told_ns is None or node.told_ns < told_ns:
            node.load, node.told_ns, node.ended = load, told_ns, 0

    def choose(self, now_ns: int, prefix: bytes = b"", without: frozenset[str] = frozenset()) -> str | None:
        """The node to ask next, or None when all are out. ``prefix`` names what the prompt begins with.

        An only node is never out: there is nobody to ask in its place.
        """
        usable = self._usable(now_ns, without)
        if not usable:
            return None
        bound = LOAD_BOUND * (sum(node.running for node in usable) + 1) / len(usable)
        usable = [node for node in usable if not self._has_enough(node, bound)] or usable
        ranked = sorted(usable, key=lambda node: _weight(prefix, node.name))
        for node in ranked:
            # The bound is rounded up: a client with few requests under way keeps to the nodes that know them.
            if node.start_in_ns(now_ns) == 0 and node.running < -(-bound // 1):
                return node.name
        order = {node.name: place for place, node in enumerate(ranked)}
        return min(
            usable, key=lambda node: (node.start_in_ns(now_ns), node.running, -node.load.derate, order[node.name])
        ).name

    def _has_enough(self, node: Node, bound: float) -> bool:
        """Whether a slow node has all requests that its speed is good for; others may well start later than there."""
        speed = self._quickness.slow.get(node.name)
        return speed is not None and node.running >= max(1.0, speed * bound)

    def _usable(self, now_ns: int, without: frozenset[str]) -> list[Node]:
        """Those that are well; else those that may be well again. Of either, those that are listed where there are."""
        if len(self._nodes) == 1:
            return [node for node in self._nodes.values() if node.name not in without]
        others = [node for node in self._nodes.values() if node.name not in without]
        usable = [node for node in others if node.usable(now_ns)]
        usable = usable or [node for node in others if node.may_be_tried(now_ns)]
        return [node for node in usable if node.listed] or usable

    def to_probe(self, now_ns: int) -> list[str]:
        """The nodes that should be asked now whether they live; none is named again before it answered or time is up.

        ``probed`` tells what it said.
        """
        if len(self._nodes) == 1:
            return []
        due = [node for node in self._nodes.values() if node.wants_probe(now_ns)]
        for node in due:
            node.probed_until_ns = now_ns + PROBE_NS
        return [node.name for node in due]

    def probed(self, name: str, now_ns: int, *, lives: bool) -> None:
        """Whether a node that failed takes work again, by its own word."""
        node = self._nodes.get(name)  # it may have left meanwhile
        if node is None or not node.failures:
            return
        node.probed_until_ns = 0
        if lives:
            node.lives = True
        else:
            node.failed(now_ns)

    def earlier(self, now_ns: int, than_ns: int, without: frozenset[str]) -> str | None:
        """A node that would start well before ``than_ns``, by what it said a moment ago.

        It is only asked: the booking that is held is left where the other one starts, or books, an earlier time.
        """
        starts = [
            (0 if node.surely_free(now_ns) else node.start_in_ns(now_ns), node.running, place)
            for place, node in enumerate(self._nodes.values())
            if node.listed and node.name not in without and node.usable(now_ns) and node.is_fresh(now_ns)
            if node.name not in self._quickness.slow
        ]
        if not starts or now_ns + min(starts)[0] + GAIN_NS > than_ns:
            return None
        return list(self._nodes)[min(starts)[2]]

    def offers(self, now_ns: int) -> list[tuple[str, int]]:
        """The nodes that have slots by what they said a moment ago, or may have one now that they are back."""
        listed = [node for node in self._nodes.values() if node.listed and node.name not in self._quickness.slow]
        found = [(node.name, node.offered(now_ns)) for node in listed]
        return [(name, slots) for name, slots in found if slots]

    def probe_due_ns(self) -> int | None:
        """When a node that failed should be asked next whether it lives; None where none failed."""
        due = [max(node.out_until_ns, node.probed_until_ns) for node in self._nodes.values() if node.awaited]
        return min(due, default=None) if len(self._nodes) > 1 else None

    def back_ns(self) -> int:
        """When the first node may be asked that is out now."""
        return min((node.out_until_ns for node in self._nodes.values()), default=0)

    def sent(self, name: str) -> None:
        """A request goes to the node, which may have been forgotten since it booked it."""
        node = self._nodes.setdefault(name, Node(name, listed=False))
        self._quickness.changes(name, node.running)
        node.asked = True
        node.running += 1
        node.unheard += 1
        node.probing = node.failures > 0

    def booked(self, name: str) -> None:
        """A call waits for a booking there, until ``unbooked``."""
        self._nodes.setdefault(name, Node(name, listed=False)).pledged += 1

    def unbooked(self, name: str) -> None:
        """It has gone there, or does not want it any more."""
        if (node := self._nodes.get(name)) is not None and node.pledged:
            node.pledged -= 1

    def heard(self, name: str, now_ns: int, load: Load | None) -> None:
        """A reply's head came: the node lives."""
        node = self._nodes[name]
        node.unheard -= 1
        self.known = True
        node.failures, node.lives, node.probing, node.out_until_ns = 0, False, False, 0
        if load is not None:
            node.load, node.told_ns, node.ended = load, now_ns, 0

    def ended(self, name: str) -> None:
        """An answer ended, however."""
        self._quickness.answered(name, {each.name: each.running for each in self._nodes.values()})
        self._left(name)
        self._nodes[name].ended += 1

    def _left(self, name: str) -> None:
        """A request is there no more."""
        node = self._nodes[name]
        self._quickness.changes(name, node.running)
        node.running -= 1

    def refused(self, name: str, now_ns: int) -> None:
        """A reply was a refusal. If its node has free slots, these are not for everybody."""
        node = self._nodes[name]
        if node.load.free and node.told_ns == now_ns:
            node.offers_from_ns = now_ns + FRESH_NS
        self._left(name)
        node.ended += 1

    def lost(self, name: str, now_ns: int) -> None:
        """No reply: nothing listens, the connection broke, or the node fell silent. It is left out for a while."""
        node = self._nodes[name]
        self._left(name)
        node.unheard -= 1
        node.probing = False
        node.failed(now_ns)

    def abandoned(self, name: str) -> None:
        """The caller broke off before a reply came; this says nothing about the node."""
        node = self._nodes[name]
        self._left(name)
        node.unheard -= 1
        node.probing = False

    def cut(self, name: str, now_ns: int) -> None:
        """A reply broke off in the middle: the node is asked again only after a pause."""
        self._nodes[name].failed(now_ns)

    def away(self, name: str, until_ns: int) -> None:
        """The node said that it takes no work until ``until_ns``."""
        node = self._nodes[name]
        node.out_until_ns = max(node.out_until_ns, until_ns)


def _weight(prefix: bytes, name: str) -> bytes:
    return hashlib.blake2b(prefix + b"\0" + name.encode(), digest_size=8).digest()
