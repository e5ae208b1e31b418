"""Clients that go away, at any time and in any state, give back what is their own and nothing else."""

from __future__ import annotations

import pytest
from arrivals import ARRIVALS, LEAVES, PRICES, SLOTS
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import LIMITS, MS, Client, Simulation, work

from zerolayer.guard.deadline.booking import Terms
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier


def _left(simulation: Simulation) -> tuple[int, ...]:
    """What is still held; demands of bookings included."""
    calendar, booked = simulation.calendar, len(simulation.admission.tickets)
    return calendar.taken, calendar.open, len(calendar.bookings), calendar.booked_ns, booked, calendar.next_open_ms()


@settings(max_examples=150, deadline=None)
@given(PRICES, ARRIVALS, LEAVES, st.integers(0, 1000), st.floats(0.3, 1.0))
def test_whoever_stays_has_its_promises_kept_and_nothing_is_left_of_who_went(prices, arrivals, leaves, seed, lazy):
    simulation = Simulation(SLOTS, prices, seed, lazy=lazy, reserved=seed % 2)
    when, infeasible = simulation.now, []
    for name, (gap, chunks, tokens, late, stops, limits, tier) in enumerate(arrivals):
        when += gap * MS
        client = Client(name, work(chunks, tokens, prices), limits, late, stops, tier, leaves_ns=leaves[name])
        client.silent = name % 4 == 3
        simulation.arrive(client, when)

    def check() -> None:
        if not simulation.calendar.is_feasible():
            infeasible.append(simulation.now)

    simulation.run(check)
    assert (simulation.broken, infeasible) == ([], [])
    assert (_left(simulation), len(simulation.done)) == ((0, SLOTS, 0, 0, 0, 0), len(arrivals))
    assert all(client.outcome != "left" or client.leaves_ns is not None for client in simulation.done)


def _standing(calendar: Calendar) -> tuple[object, ...]:
    """All that is promised, and how much more each promise can bear."""
    feasible = calendar.is_feasible()  # which computes the ends
    booked = [(each.start_ns, each.spare_ns, each.hold_ns, each.need_ns) for each in calendar.bookings]
    return feasible, booked, calendar.ends(), calendar.free, calendar.booked_ns


@settings(max_examples=60, deadline=None)
@given(PRICES, ARRIVALS, st.integers(0, 1000), st.integers(1, 3), st.integers(1, 60))
def test_what_is_claimed_or_booked_and_given_back_leaves_all_promises_as_they_were(
    prices, arrivals, seed, chunks, tokens
):
    simulation = Simulation(SLOTS, prices, seed, lazy=0.8)
    calendar, when, changed = simulation.calendar, simulation.now, []
    for name, (gap, of_prompt, of_answer, late, stops, limits, tier) in enumerate(arrivals):
        when += gap * MS
        simulation.arrive(Client(name, work(of_prompt, of_answer, prices), limits, late, stops, tier), when)
    asked = work(chunks, tokens, prices)

    def check() -> None:
        terms = Terms(simulation.now, LIMITS.first_token_ns, LIMITS.per_token_ns, LIMITS.end_ns)
        before = _standing(calendar)
        slot = calendar.claim(asked, terms) if calendar.confirmed else -1  # on an engine at rest time begins anew
        if slot >= 0:
            calendar.release(slot)
            if _standing(calendar) != before:
                changed.append("claimed")
        booking = calendar.book(asked, terms)
        if booking is not None:
            calendar.void(booking)
            if _standing(calendar) != before:
                changed.append("booked")

    simulation.run(check)
    assert changed == []


def test_ten_thousand_requests_of_which_half_are_cancelled_leave_nothing_behind():
    prices = Prices(5 * MS, (0, 10 * MS), 10 * MS, 1.1, 15 * MS)
    simulation = Simulation(SLOTS, prices, 7, lazy=0.8, reserved=1)
    dice, when = simulation.random, simulation.now
    for name in range(10_000):
        when += int(dice.expovariate(1) * 15 * MS)
        late = dice.choice([None, *[2 * MS] * 8, 200 * MS])
        leaves = dice.choice([None, dice.randint(0, 100) * MS])
        asked = work(dice.randint(1, 3), dice.randint(1, 20), prices)
        tier = dice.choice(list(Tier))
        simulation.arrive(Client(name, asked, LIMITS, late, dice.choice([None, 3]), tier, leaves_ns=leaves), when)
    simulation.run()
    assert simulation.broken == []
    assert (_left(simulation), len(simulation.done)) == ((0, SLOTS, 0, 0, 0, 0), 10_000)
    assert sum(client.outcome == "left" for client in simulation.done) > 2_000
    # What bookings add to each other is given back, too: a calendar that never saw any of them promises the same.
    fresh = Simulation(SLOTS, prices, 7, reserved=1)
    fresh.now = simulation.now
    starts = []
    for each in (simulation, fresh):
        each.costs.backlog = 0  # the last step may have been a slow one
        each.admission.sweep(each.now)
        for name in range(3 * SLOTS):
            each.arrive(Client(name, work(2, 30, prices), LIMITS), each.now)
        for _ in range(3 * SLOTS):
            each.go_on()
        starts.append([(booking.start_ns, booking.need_ns, booking.spare_ns) for booking in each.calendar.bookings])
    assert starts[0] == starts[1]
    assert starts[0]


@pytest.mark.parametrize("leaves_ms", [2, 40])  # while its prompt is read, and while it decodes
def test_a_slot_of_who_went_is_somebody_elses_within_a_few_steps(leaves_ms):
    prices = Prices(5 * MS, (0, 5 * MS), 0, 1.0, 10 * MS)
    simulation = Simulation(1, prices, 1)
    start, leaves = simulation.now, leaves_ms * MS
    simulation.arrive(Client(7, work(1, 1_000, prices), leaves_ns=leaves), start)
    simulation.arrive(Client(14, work(1, 10, prices)), start + leaves + 40 * MS)
    simulation.run()
    outcomes = {client.name: (client.outcome, client.refusals) for client in simulation.done}
    assert outcomes == {7: ("left", []), 14: ("served", [])}


def test_a_start_of_who_went_while_it_was_held_for_it_is_somebody_elses():
    prices = Prices(5 * MS, (0, 5 * MS), 0, 1.0, 10 * MS)
    simulation = Simulation(1, prices, 1)
    simulation.arrive(Client(7, work(1, 40, prices)), simulation.now)
    simulation.arrive(Client(14, work(1, 1_000, prices), late_ns=-5 * MS), simulation.now)

    def look() -> None:
        if simulation._held:
            simulation._leave(simulation._held[0][1])
            simulation.arrive(Client(21, work(1, 10, prices)), simulation.now + 40 * MS)

    simulation.run(look)
    outcomes = {client.name: (client.outcome, len(client.refusals)) for client in simulation.done}
    assert (simulation.broken, outcomes) == ([], {7: ("served", 0), 14: ("left", 1), 21: ("served", 0)})


def _promises(calendar: Calendar, prices: Prices, now: int) -> list[tuple[object, ...]]:
    """What a calendar that rests would give one after another, and how much room each leaves."""
    asked, given_ = work(2, 30, prices), []
    terms = Terms(now, LIMITS.first_token_ns, LIMITS.per_token_ns, LIMITS.end_ns, urgent=True)
    for _ in range(2 * SLOTS):
        if calendar.claim(asked, terms) >= 0:
            given_.append((calendar.free, calendar.is_feasible()))
            continue
        booking = calendar.book(asked, terms)
        given_.append(booking and (booking.start_ns, booking.need_ns, booking.hold_ns, booking.spare_ns))
    return given_


@settings(max_examples=100, deadline=None)
@given(PRICES, ARRIVALS, LEAVES, st.integers(0, 1000), st.floats(0.3, 1.0))
def test_whatever_has_come_and_gone_a_calendar_then_promises_what_a_new_one_does(prices, arrivals, leaves, seed, lazy):
    used, new = (Simulation(SLOTS, prices, seed, lazy=lazy, reserved=seed % 2) for _ in range(2))
    when = used.now
    for name, (gap, chunks, tokens, late, stops, limits, tier) in enumerate(arrivals):
        when += gap * MS
        used.arrive(Client(name, work(chunks, tokens, prices), limits, late, stops, tier, leaves_ns=leaves[name]), when)
    used.run()
    new.now, new.costs.backlog = used.now, used.costs.backlog
    assert _promises(used.calendar, prices, used.now) == _promises(new.calendar, prices, new.now)
