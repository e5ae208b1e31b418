"""Which nodes are far slower than the others for this client, whatever they say of themselves. Pure: no clock.

A node behind a bad network, or one that computes at a tenth of its speed, has free slots by its own word, and a client
that trusts that waits there with most of its calls. What shows it is where answers end: a node with a quarter of the
requests should have a quarter of the answers. So the answers of all nodes are the clock, and a node is judged by its
own ones over those that the requests it had meanwhile stand for (Little's law). It keeps as many requests as its speed
is good for, and one at least, by which it is seen to be well again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WINDOW: Final = 16  # answers a node that are looked at, with weights that fade
SEEN: Final = 8  # answers that it should have had, before it is judged
SLOW: Final = 0.25  # of the speed of all: above that, chance and the calls' own lengths may be why
WELL: Final = 0.5  # from here on it is slow no more


@dataclass
class _Share:
    own: float = 0.0  # answers
    running: float = 0.0  # requests, summed over the answers of all nodes
    seen: int = 0  # answers of all nodes so far


class Quickness:
    """``changes`` is told before the number of a node's requests changes, ``answered`` of each answer that ended.

    ``slow``: the nodes that are, with their speed over that of all.
    """

    def __init__(self) -> None:
        self.slow: dict[str, float] = {}
        self._answers = 0
        self._keep = 0.0
        self._shares: dict[str, _Share] = {}

    def changes(self, name: str, running: int) -> None:
        """It had ``running`` requests until now."""
        share = self._shares.setdefault(name, _Share(seen=self._answers))
        passed = self._answers - share.seen
        if passed and self._keep:
            kept = self._keep**passed
            share.own *= kept
            share.running = share.running * kept + running * (1 - kept) / (1 - self._keep)
        share.seen = self._answers

    def answered(self, name: str, running: Mapping[str, int]) -> None:
        """One of its requests is answered, when the nodes had so many: each is judged anew."""
        self._keep = 1 - 1 / (WINDOW * len(running))
        self._answers += 1
        for each, count in running.items():
            self.changes(each, count)
        shares = {each: self._shares[each] for each in running}
        shares[name].own += 1
        total = sum(share.running for share in shares.values())
        usual = sum(share.own for share in shares.values()) / total if total else 0.0
        expected = {each: share.running * usual for each, share in shares.items()}
        self.slow = {
            each: shares[each].own / due
            for each, due in expected.items()
            if (each in self.slow and shares[each].own < WELL * due) or (due >= SEEN and shares[each].own < SLOW * due)
        }

    def forget(self, name: str) -> None:
        """It is no node any more."""
        self._shares.pop(name, None)
        self.slow.pop(name, None)
