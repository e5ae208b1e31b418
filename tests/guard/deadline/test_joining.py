"""What is known of a request's end: how it joins is uncertain, and over with its first token."""

from __future__ import annotations

import pytest
from simulation import LIMITS, MS, Client, Simulation, work

from zerolayer.guard.deadline.booking import JOIN_STEPS, Terms
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.model.cost import Prices

STEP = 5 * MS
PRICES = Prices(STEP, (0, 3 * MS), MS, 1.05, 10 * MS)
TOKENS = 16


def test_the_bound_of_an_end_has_no_steps_of_joining_once_the_first_token_is_there() -> None:
    calendar = Calendar(2, lambda: 0, lambda: PRICES)
    asked = work(2, TOKENS, PRICES)
    slot = calendar.claim(asked, Terms(0, 5_000 * MS, 250 * MS, 60_000 * MS))
    calendar.confirm(slot, asked)
    chunks_ns, later_ns = 2 * (STEP + 3 * MS), (TOKENS - 1) * STEP

    def bound() -> int:
        calendar.is_feasible()  # computes the ends
        return calendar.ends()[slot][0]

    assert bound() == PRICES.reserve_ns + JOIN_STEPS * STEP + chunks_ns + later_ns
    calendar.on_step(slot, 10 * MS)
    assert bound() == 10 * MS + PRICES.reserve_ns + JOIN_STEPS * STEP + chunks_ns // 2 + later_ns
    calendar.on_step(slot, 20 * MS)
    assert bound() == 20 * MS + PRICES.reserve_ns + later_ns
    calendar.on_step(-1, 25 * MS)
    assert bound() == 25 * MS + PRICES.reserve_ns + later_ns - STEP


@pytest.mark.parametrize("slots", [4, 8])
def test_slots_hardly_rest_between_short_requests_that_are_booked(slots) -> None:
    """A start that is planned for some steps after the slot is free loses as many steps of every request."""
    prices = Prices(STEP, (0, 0), MS, 1.05, 10 * MS)
    simulation = Simulation(slots, prices, 1, lazy=0.95)
    asked = work(1, TOKENS, prices)
    when = simulation.now
    for number in range(40 * slots):
        simulation.arrive(Client(number, asked, LIMITS, late_ns=MS, tries=40), when)
        when += asked.steps * STEP // slots
    begun_ns = simulation.now
    simulation.run()
    assert simulation.broken == []
    served = [client for client in simulation.done if client.outcome == "served"]
    busy_ns = len(served) * asked.steps * STEP * 0.95
    span_ns = max(client.ended_ns for client in served) - begun_ns
    assert len(served) == 40 * slots
    assert busy_ns / (slots * span_ns) > 0.9
