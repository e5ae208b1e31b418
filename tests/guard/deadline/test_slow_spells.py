"""A machine that is slow for some seconds, in fake time: afterwards as many are admitted as if nothing had been."""

from __future__ import annotations

import pytest
from costed import Costed, Engine
from simulation import MS, Client

from zerolayer.guard.deadline.limits import Limits

S = 1_000 * MS
ENGINE = Engine(one=3.6, full=19.5, chunk=62.0)  # the bundled model
BEGINS = 20 * S
AGAIN = 2 * S  # after the spell


def _served(slowness: float, lasts_s: int, end_ms: int, seed: int, load: float) -> list[bool]:
    """Of those who come more than ``AGAIN`` after the spell, in order: whether it was served."""
    service = Costed(ENGINE, seed)
    limits = Limits(2_000 * MS, 250 * MS, end_ms * MS)
    start = when = service.now
    ends = start + BEGINS + lasts_s * S
    rate, name = load * ENGINE.capacity(service.tokens), 0
    while when < ends + 30 * S:
        when += int(service.random.expovariate(rate) * S)
        service.arrive(Client(7 * name, service._work(127), limits, 1 * MS), when)
        name += 1

    def change(to: float) -> None:
        service.slowness = to

    service.at(start + BEGINS, change, slowness)
    service.at(ends, change, 1.0)
    service.run()
    later = [client for client in service.done if client.came_ns > ends + AGAIN]
    return [client.outcome == "served" for client in sorted(later, key=lambda each: each.came_ns)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("end_ms", [3_000, 4_000])
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_two_seconds_after_three_slow_ones_requests_are_admitted_as_ever(seed: int, end_ms: int, load: float) -> None:
    quiet = _served(1.0, 3, end_ms, seed, load)
    after = _served(3.0, 3, end_ms, seed, load)
    assert sum(after[:40]) >= sum(quiet[:40]) - 3
    assert sum(after) >= 0.97 * sum(quiet)


def test_a_spell_in_which_nobody_could_be_served_leaves_nobody_refused_for_it_either() -> None:
    """Then no step is left that could show that it is over."""
    quiet, after = (_served(slowness, 30, 2_500, 1, 0.3) for slowness in (1.0, 8.0))
    assert after == quiet
