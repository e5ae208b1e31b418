"""A machine that is slow for some seconds, in fake time: afterwards as many are admitted as if nothing had been."""

from __future__ import annotations

import pytest
from costed import Costed, Engine
from simulation import MS, Client

from zerolayer.guard.deadline.limits import Limits

S = 1_000 * MS
ENGINE = Engine(one=3.6, full=19.5, chunk=62.0)  # the bundled model
SPELL = (20 * S, 23 * S)
AGAIN = 2 * S  # after the spell


def _served(slowness: float, end_ms: int, seed: int, load: float) -> tuple[list[bool], Costed]:
    """Of those who come more than ``AGAIN`` after the spell, in order: whether it was served."""
    service = Costed(ENGINE, seed)
    limits = Limits(2_000 * MS, 250 * MS, end_ms * MS)
    start = when = service.now
    rate, name = load * ENGINE.capacity(service.tokens), 0
    while when < start + 60 * S:
        when += int(service.random.expovariate(rate) * S)
        service.arrive(Client(7 * name, service._work(127), limits, 1 * MS), when)
        name += 1

    def change(to: float) -> None:
        service.slowness = to

    service.at(start + SPELL[0], change, slowness)
    service.at(start + SPELL[1], change, 1.0)
    service.run()
    later = [client for client in service.done if client.came_ns > start + SPELL[1] + AGAIN]
    return [client.outcome == "served" for client in sorted(later, key=lambda each: each.came_ns)], service


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("end_ms", [3_000, 4_000])
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_two_seconds_after_three_slow_ones_requests_are_admitted_as_ever(seed: int, end_ms: int, load: float) -> None:
    quiet, _ = _served(1.0, end_ms, seed, load)
    after, _ = _served(3.0, end_ms, seed, load)
    assert sum(after[:40]) >= sum(quiet[:40]) - 3
    assert sum(after) >= 0.97 * sum(quiet)
