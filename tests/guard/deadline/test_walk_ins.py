"""Who comes without a booking while others are booked: it runs where it costs them nothing that they were promised."""

from __future__ import annotations

import random

import msgspec
import pytest
from arrivals import LATENESS, PRICES, SLOTS
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import LIMITS, MS, Client, Simulation, work

from zerolayer.guard.deadline.admission import Grant
from zerolayer.guard.deadline.booking import JOIN_STEPS, Booking, Room, Terms
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import Limits
from zerolayer.model.cost import Prices

BOOKED = 70
WALK_INS = st.lists(
    st.tuples(
        st.integers(0, 30),  # ms before the booked start
        st.integers(1, 4),  # chunks
        st.integers(1, 60),  # tokens
    ),
    max_size=8,
)


def _until_booked(simulation: Simulation, client: Client, stops_after: int) -> Booking | None:
    """All slots are taken by who ends early, which nobody knows; then ``client`` comes."""
    for name in range(100, 100 + SLOTS):
        first = Client(name, work(1, 200, simulation.prices), LIMITS, stops_after=stops_after)
        simulation.arrive(first, simulation.now)
    simulation.arrive(client, simulation.now + 1)
    while not client.refusals:
        simulation.go_on()
    return next(iter(simulation.calendar.bookings), None)


@settings(max_examples=150, deadline=None)
@given(
    PRICES, st.integers(1, 3), st.integers(1, 40), st.floats(1.0, 3.0), WALK_INS, st.integers(1, 30), st.integers(0, 99)
)
def test_all_who_walk_in_before_a_booked_start_together_leave_it_the_time_it_needs(
    prices, chunks, tokens, room, walk_ins, stops_after, seed
):
    simulation = Simulation(SLOTS, prices, seed, lazy=1.0)
    asked = work(chunks, tokens, prices)
    limits = Limits(int(asked.first_ns(prices) * room) + 10 * MS, 250 * MS, int(asked.need_ns(prices) * room) + 10 * MS)
    booked = Client(BOOKED, asked, limits, late_ns=-5 * MS)
    booking = _until_booked(simulation, booked, stops_after)
    for name, (before_ms, of_prompt, of_answer) in enumerate(walk_ins if booking else []):
        client = Client(name, work(of_prompt, of_answer, prices), LIMITS, tries=1)
        simulation.arrive(client, max(simulation.now, booking.start_ns - before_ms * MS))
    simulation.run()
    assert simulation.broken == []
    assert booking is None or booked.outcome == "served"


def _typical(simulation: Simulation) -> None:
    """Steps take what they take as a rule."""
    prices = simulation.prices
    simulation.prices = Prices(
        int(prices.step_ns / prices.rate), (0, int(prices.chunk_ns[-1] / prices.rate)), 0, 1.0, prices.stall_ns
    )


QUICK_READER = PRICES.map(lambda each: msgspec.structs.replace(each, chunk_ns=(0, 0), stall_ns=each.step_ns))


@settings(max_examples=150, deadline=None)
@given(QUICK_READER, st.integers(2, 40), WALK_INS, st.integers(1, 150), st.integers(0, 99))
def test_whoever_walks_in_has_ended_when_the_next_one_is_booked_in_its_slot_if_steps_go_as_a_rule(
    prices, tokens, walk_ins, stops_after, seed
):
    simulation = Simulation(SLOTS, prices, seed, lazy=1.0)
    booked = Client(BOOKED, work(1, tokens, prices), LIMITS)
    booking = _until_booked(simulation, booked, stops_after)
    _typical(simulation)
    for name, (before, of_prompt, of_answer) in enumerate(walk_ins):
        client = Client(name, work(of_prompt, 3 * of_answer, prices), LIMITS, tries=1)
        simulation.arrive(client, max(simulation.now, booking.start_ns - before * 20 * MS))
    simulation.run()
    assert simulation.broken == []
    assert booked.waited_ns <= JOIN_STEPS * prices.step_ns + prices.stall_ns


def _held_for_walk_ins(seed: int) -> float:
    """For how much of a service somebody who is booked is held at most, of several, with steps as they usually are."""
    dice = random.Random(seed)
    step, chunk = dice.randint(1, 10), dice.choice([0, dice.randint(0, 20)])
    prices = Prices(step * MS, (0, chunk * MS), dice.randint(0, 30) * MS, dice.uniform(1, 1.5), (step + chunk) * MS)
    simulation = Simulation(SLOTS, prices, seed)
    asked, stops_after = work(1, dice.randint(10, 60), prices), dice.randint(1, 150)
    clients = [Client(7 * number, asked) for number in range(BOOKED, BOOKED + dice.randint(2, 8))]
    for name in range(SLOTS):
        simulation.arrive(Client(name, work(1, 200, prices), stops_after=stops_after), simulation.now)
    for number, client in enumerate(clients, 1):
        simulation.arrive(client, simulation.now + number)
    while not all(client.refusals for client in clients):
        simulation.go_on()
    first = simulation.calendar.bookings[0]
    _typical(simulation)
    for number in range(dice.randint(0, 8)):
        walk_in = Client(7 * number + 1, work(dice.randint(1, 4), 3 * dice.randint(1, 60), prices), tries=1)
        simulation.arrive(walk_in, max(simulation.now, first.start_ns - dice.randint(0, 30) * 20 * MS))
    simulation.run()
    assert simulation.broken == []
    joining_ns = JOIN_STEPS * prices.step_ns + prices.stall_ns
    return max(client.waited_ns - joining_ns for client in clients) / first.typical_ns


def test_whoever_is_booked_waits_for_an_eighth_of_a_service_at_most_for_who_walks_in_as_a_rule():
    held = [_held_for_walk_ins(seed) for seed in range(300)]
    assert sum(share > 1 / 8 for share in held) <= 2


@pytest.mark.parametrize(
    ("room", "left", "lent"),
    [
        (Room.LENT, 52, True),  # the other slot is free when somebody comes for the booking
        (Room.LENT, 200, False),  # it would have to wait for much of a service
        (Room.NONE, 52, False),  # all who came could be booked
    ],
)
def test_a_slot_in_which_somebody_is_booked_soon_is_lent_where_another_one_comes_free_in_time(room, left, lent):
    now, prices = 1_000 * MS, Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    calendar = Calendar(2, lambda: now, lambda: prices)
    terms = Terms(now, 5_000 * MS, 250 * MS, 60_000 * MS)
    for tokens in (50, left):
        calendar.confirm(calendar.claim(work(1, tokens, prices), terms), work(1, tokens, prices))
    booking = calendar.book(work(1, 100, prices), terms, room=room)
    calendar.release(0)  # sooner than anybody knew
    assert (calendar.free, booking.slot) == (1, 0)
    assert (calendar.claim(work(1, 100, prices), terms) == 0) == lent


@pytest.mark.parametrize("reserved", [1, 2])
def test_who_is_urgent_has_a_reserved_slot_in_which_nobody_is_booked_whatever_is_in_others(reserved):
    now, prices = 1_000 * MS, Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    calendar = Calendar(2, lambda: now, lambda: prices, reserved=reserved)
    urgent = Terms(now, 5_000 * MS, 250 * MS, 60_000 * MS, urgent=True)
    for tokens in (200, 100):
        calendar.confirm(calendar.claim(work(1, tokens, prices), urgent), work(1, tokens, prices))
    booking = calendar.book(work(1, 100, prices), msgspec.structs.replace(urgent, urgent=reserved == 2))
    assert booking.slot == 1
    calendar.release(0)
    assert calendar.claim(work(1, 300, prices), urgent) == 0


@pytest.mark.parametrize("slots", [1, 4])
def test_a_start_is_found_in_the_slot_of_who_has_just_gone(slots):
    """What it would have taken is nobody's any more, though its slot is not free before the next border."""
    prices = Prices(5 * MS, (0, 5 * MS), 0, 1.0, 10 * MS)
    simulation = Simulation(slots, prices, 1)
    leaves_ns = 52 * MS  # while a step is under way
    for name in range(slots):
        gone = Client(name, work(1, 1_000, prices), leaves_ns=leaves_ns if name == 0 else None)
        simulation.arrive(gone, simulation.now)
    late = Client(BOOKED, work(1, 10, prices))
    went_ns = simulation.now + leaves_ns
    simulation.arrive(late, went_ns + 1)
    simulation.run()
    assert simulation.broken == []
    assert late.refusals == ["busy"]
    assert late.admitted_ns <= went_ns + (JOIN_STEPS + 2) * prices.stall_ns


class Fair(Simulation):
    """Remembers who began without a booking while somebody was held who is booked for as little work."""

    def __init__(self, *given, **more) -> None:
        super().__init__(*given, **more)
        self.passed: list[tuple[int, int]] = []

    def _start(self, client: Client, grant: Grant, arrived: int) -> None:
        if not grant.booked:
            mine = client.work
            for _, each, _ in self._held:
                if each.work.chunks <= mine.chunks and each.work.tokens <= mine.tokens:
                    self.passed.append((each.name, client.name))
        super()._start(client, grant, arrived)


@settings(max_examples=150, deadline=None)
@given(
    PRICES,
    st.lists(
        st.tuples(st.integers(0, 100), st.integers(1, 4), st.integers(1, 60), LATENESS, st.sampled_from([None, 1, 9])),
        max_size=60,
    ),
    st.integers(0, 1000),
    st.floats(0.3, 1.0),
)
def test_nobody_walks_in_past_a_booked_client_that_is_there_and_needs_no_more(prices, arrivals, seed, lazy):
    simulation = Fair(SLOTS, prices, seed, lazy=lazy)
    when = simulation.now
    for name, (gap, chunks, tokens, late, stops) in enumerate(arrivals):
        when += gap * MS
        simulation.arrive(Client(name, work(chunks, tokens, prices), LIMITS, late, stops), when)
    simulation.run()
    assert (simulation.broken, simulation.passed) == ([], [])
