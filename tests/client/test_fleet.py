"""What callers of full nodes are served while nodes fail, in fake time: no machine's mood is in these figures."""

from __future__ import annotations

import pytest

from client.fleet import SLOTS, Callers, State
from zerolayer.client.nodes import OUTAGE_SHARE

NODES = 4
BEFORE_MS, SETTLE_MS = 3000, 1500
GONE_MS, ENDS_MS = 1300, 200


class Watched:
    """As many callers as there are slots; what was served since ``begin``."""

    def __init__(self, seed: int, **given: int) -> None:
        self.callers = Callers(seed, NODES * SLOTS, NODES, **given)
        self.callers.world.run(SETTLE_MS)
        self.begin()
        self.callers.world.run(BEFORE_MS)
        self.before = self.rate()

    def begin(self) -> None:
        self._began_ns, self._done = self.callers.world.now, len(self.callers.done)
        self._used_ns = self.callers.used_ns()
        self.callers.requests.clear()

    def rate(self) -> float:
        """Answers a nanosecond."""
        return (len(self.callers.done) - self._done) / (self.callers.world.now - self._began_ns)

    def in_use(self) -> float:
        """Slots, on average."""
        return (self.callers.used_ns() - self._used_ns) / (self.callers.world.now - self._began_ns)

    def asked(self) -> float:
        """Requests for each answer."""
        return self.callers.requests["asked"] / (len(self.callers.done) - self._done)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("tokens", [16, 64])
def test_slots_of_living_nodes_are_in_use_while_calls_wait(seed, tokens) -> None:
    """And each call is refused about once, where it books: twice as many callers would be no reason to ask more."""
    watched = Watched(seed, tokens=tokens)
    next(iter(watched.callers.nodes.values())).state = State.DOWN
    watched.callers.world.run(2 * SETTLE_MS)
    watched.begin()
    watched.callers.world.run(4000)
    assert watched.in_use() > 0.96 * (NODES - 1) * SLOTS
    assert watched.asked() < 2.25
    assert watched.callers.tally.statistics().failed == 0


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("tokens", [16, 64])
def test_a_restart_of_all_in_turn_keeps_what_all_but_one_can_give(seed, tokens) -> None:
    watched = Watched(seed, tokens=tokens)
    world = watched.callers.world
    watched.begin()
    for node in watched.callers.nodes.values():
        node.state = State.DRAINS
        while not node.empty:
            world.run(5)
        world.run(ENDS_MS)
        node.state = State.DOWN
        world.run(GONE_MS)
        node.start()
        world.run(world.random.uniform(0, 50))  # until that is seen, and the next one ends
    assert watched.rate() > 0.74 * watched.before
    assert watched.in_use() > 0.96 * (NODES - 1) * SLOTS
    assert watched.callers.tally.statistics().failed == 0


def test_a_node_that_is_back_is_in_use_soon_though_all_callers_have_long_bookings() -> None:
    """Requests of 300 tokens: who waits would not come back before the next of them ends."""
    watched = Watched(1, tokens=300, deadline_ms=30_000)
    world = watched.callers.world
    back = next(iter(watched.callers.nodes.values()))
    back.state = State.DOWN
    world.run(GONE_MS)
    back.start()
    world.run(GONE_MS / OUTAGE_SHARE + 60)  # until it is found, tried, and the others follow
    back.count()
    used_ns, now = back.used_ns, world.now
    world.run(100)
    back.count()
    assert back.used_ns - used_ns > 0.6 * SLOTS * (world.now - now)  # who starts elsewhere in a moment stays there
    assert watched.callers.tally.statistics().woken >= SLOTS - 1
