"""Calls that wait for a promised time or after a guess, while a node may come to have a slot for them. Pure.

A node that is back, or says that it has free slots, is told to those who would wait for longest: one for each slot, so
that nobody is refused for it. Where all nodes are full nobody is woken.
"""

from __future__ import annotations

from collections.abc import Callable

from zerolayer.client.call import Call
from zerolayer.client.nodes import Nodes


class Waiters:
    """The calls of one client that wait, each with what ends its wait."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._waiting: dict[Call, Callable[[], object]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: Call, wake: Callable[[], object]) -> None:
        """``call`` waits until ``remove``; ``wake`` is called once at most, and ``call.next`` then says where to go."""
        self._waiting[call] = wake

    def remove(self, call: Call) -> None:
        """It waits no more. Idempotent."""
        self._waiting.pop(call, None)

    def look(self, now_ns: int) -> None:
        """Something was heard of a node: wake whom it has a slot for."""
        if not self._waiting:
            return
        for name, slots in self._nodes.offers(now_ns):
            for call in sorted(self._waiting, key=lambda call: -call.waits_ns(now_ns))[:slots]:
                if not call.wake(now_ns, name):
                    return  # nor would those who wait for less
                self._waiting.pop(call)()
