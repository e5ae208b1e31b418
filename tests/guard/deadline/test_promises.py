"""What is promised is kept, whatever comes in whatever order: clients and engine in fake time (``simulation.py``)."""

from __future__ import annotations

import msgspec
import pytest
from arrivals import ARRIVALS, GRACES_MS, PRICES, SLOTS, STEADY, TIGHT, TIGHTER
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulation import LIMITS, MS, Client, Simulation, work

from zerolayer.guard.deadline._native import Attendance
from zerolayer.guard.deadline.limits import Limits
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier


def _simulate(prices: Prices, arrivals: list[tuple], seed: int, lazy: float, grace_ms: int, check) -> Simulation:
    simulation = Simulation(SLOTS, prices, seed, lazy=lazy, reserved=seed % 2, grace_ms=grace_ms)
    when = simulation.now
    for name, (gap, chunks, tokens, late, stops, limits, tier) in enumerate(arrivals):
        when += gap * MS
        silent = name % 4 == 3
        simulation.arrive(Client(name, work(chunks, tokens, prices), limits, late, stops, tier, silent=silent), when)
    simulation.run(lambda: check(simulation))
    return simulation


def _prices(step_ms: int, chunk_ms: int, reserve_ms: int, rate: float) -> Prices:
    return Prices(step_ms * MS, (0, chunk_ms * MS), reserve_ms * MS, rate, (step_ms + chunk_ms) * MS)


def _one(
    gap_ms: int, chunks: int, tokens: int, late_ms: int | None = 0, limits: Limits = TIGHTER, stops: int | None = None
) -> tuple:
    return gap_ms, chunks, tokens, None if late_ms is None else late_ms * MS, stops, limits, Tier.DEFAULT


EARLY = [*[_one(0, 1, 60, limits=LIMITS)] * SLOTS, _one(50, 1, 60, -5)]
WHILE_STEPS_ARE_LATE = [_one(193, 3, 10, -5, LIMITS), _one(207, 3, 49, 20, STEADY), _one(0, 4, 43, -5, stops=5)]
BEHIND_A_PROMPT = [_one(0, 3, 3), _one(0, 4, 44)]  # which is read when the second one comes
BEHIND_TWO_PROMPTS = [_one(0, 4, 23), _one(0, 1, 53), _one(0, 1, 40)]
WIDE = Limits(900 * MS, 250 * MS, 3_000 * MS)
BESIDE_WHO_RUNS_IN_ITS_SLOT = [  # the booked one begins in another slot, that has become free
    *[_one(279, 3, 40, 20), _one(0, 4, 43, 0, TIGHT), _one(20, 3, 28, stops=5), _one(20, 3, 46, None, LIMITS)],
    *[_one(278, 1, 42, None, TIGHT, 5), _one(0, 1, 56, 0, TIGHT, 5), _one(0, 4, 16, 0, LIMITS, 5)],
    *[_one(0, 4, 30, 0, TIGHT), _one(0, 2, 39, 20, LIMITS, 5), _one(0, 4, 40, 20, STEADY, 5)],
    *[_one(259, 2, 37, None, TIGHT), _one(0, 4, 50, 0, WIDE, 5), _one(20, 1, 51, 0, TIGHT)],
]
TWO_BEHIND_ONE = [
    *[_one(200, 3, 42, 250, LIMITS), _one(140, 1, 46, -5, TIGHT), _one(0, 3, 23), _one(48, 4, 19, -5)],
    *[_one(0, 2, 24, 0, WIDE, 5), _one(20, 1, 2, 0, LIMITS)],
]
JUST_AS_ANOTHER_ENDS = [_one(46, 2, 49, -5), _one(107, 1, 56, 0, TIGHT, 5)]


@settings(max_examples=150, deadline=None)
@example(_prices(10, 26, 17, 1.4), BESIDE_WHO_RUNS_IN_ITS_SLOT, 3, 1.0, 20)
@example(_prices(6, 0, 18, 1.0), EARLY, 2, 1.0, 20)
@example(_prices(7, 12, 11, 1.0), WHILE_STEPS_ARE_LATE, 39, 0.8, 20)
@example(_prices(6, 19, 13, 1.12), BEHIND_A_PROMPT, 0, 1.0, 250)
@example(_prices(6, 13, 1, 1.4), BEHIND_TWO_PROMPTS, 0, 1.0, 20)
@given(PRICES, ARRIVALS, st.integers(0, 1000), st.floats(0.3, 1.0), GRACES_MS)
def test_no_admitted_request_is_late_and_every_redeemed_booking_is_served(prices, arrivals, seed, lazy, grace_ms):
    simulation = _simulate(prices, arrivals, seed, lazy, grace_ms, lambda _: None)
    assert simulation.broken == []


@settings(max_examples=80, deadline=None)
@example(_prices(9, 35, 0, 1.0), TWO_BEHIND_ONE, 55, 1.0, 250)
@example(_prices(6, 37, 0, 1.0), JUST_AS_ANOTHER_ENDS, 87, 1.0, 20)
@given(PRICES, ARRIVALS, st.integers(0, 1000), st.floats(0.3, 1.0), GRACES_MS)
def test_the_sum_of_promises_is_feasible_at_all_times(prices, arrivals, seed, lazy, grace_ms):
    infeasible = []

    def check(simulation: Simulation) -> None:
        if not simulation.calendar.is_feasible():
            infeasible.append(simulation.now)

    _simulate(prices, arrivals, seed, lazy, grace_ms, check)
    assert infeasible == []


@settings(max_examples=80, deadline=None)
@given(PRICES, ARRIVALS, st.integers(0, 1000), st.floats(0.3, 1.0), GRACES_MS)
def test_whoever_is_booked_is_told_a_time_that_is_to_come(prices, arrivals, seed, lazy, grace_ms):
    known, past = set(), []

    def check(simulation: Simulation) -> None:
        new = [booking for booking in simulation.calendar.bookings if booking.ticket not in known]
        known.update(booking.ticket for booking in new)
        past.extend(booking for booking in new if booking.start_ns <= simulation.now)

    _simulate(prices, arrivals, seed, lazy, grace_ms, check)
    assert past == []


@settings(max_examples=60, deadline=None)
@given(PRICES, ARRIVALS, st.integers(0, 1000), GRACES_MS)
def test_nothing_is_left_behind(prices, arrivals, seed, grace_ms):
    simulation = _simulate(prices, arrivals, seed, 0.8, grace_ms, lambda _: None)
    calendar = simulation.calendar
    left = (calendar.taken, len(calendar.bookings), calendar.booked_ns, len(simulation.admission.tickets))
    assert (left, len(simulation.done)) == ((0, 0, 0, 0), len(arrivals))


def test_ten_thousand_requests_leave_nothing_behind():
    prices = Prices(5 * MS, (0, 10 * MS), 10 * MS, 1.1, 15 * MS)
    simulation = Simulation(SLOTS, prices, 7, lazy=0.8)
    when = simulation.now
    for name in range(10_000):
        when += int(simulation.random.expovariate(1) * 15 * MS)
        late = simulation.random.choice([None, *[2 * MS] * 8, 200 * MS])
        tokens = simulation.random.randint(1, 20)
        stops = simulation.random.choice([None, 3])
        simulation.arrive(Client(name, work(1, tokens, prices), LIMITS, late, stops), when)
    simulation.run()
    calendar = simulation.calendar
    assert simulation.broken == []
    left = (calendar.taken, len(calendar.bookings), calendar.booked_ns, len(simulation.admission.tickets))
    assert left == (0, 0, 0, 0)


@pytest.mark.parametrize(("chunk_ms", "used"), [(0, 0.9), (20, 0.87)])  # long prompts wait for others' last tokens
def test_under_overload_slots_hardly_rest_though_all_that_starts_is_booked(chunk_ms, used):
    prices = Prices(5 * MS, (0, chunk_ms * MS), 5 * MS, 1.05, (5 + chunk_ms) * MS)
    simulation = Simulation(16, prices, 1, lazy=0.95)
    per_request = (chunk_ms + 5 * 64 / 16) * 0.975 * MS
    when = simulation.now
    for name in range(800):
        when += int(simulation.random.expovariate(1) * per_request / 1.5)
        simulation.arrive(Client(name, work(1, 64, prices), late_ns=2 * MS), when)
    assert simulation.used(3_000 * MS, when) >= used


def test_an_early_stop_gives_its_time_to_whoever_comes_next():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(1, prices, 1)
    start = simulation.now
    simulation.arrive(Client(0, work(1, 1000, prices), stops_after=3), start)
    simulation.arrive(Client(1, work(1, 10, prices)), start + 100 * MS)
    simulation.run()
    assert [client.refusals for client in simulation.done] == [[], []]


def test_a_walk_in_runs_before_the_next_booking_if_it_ends_in_time():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(1, prices, 1)
    start = simulation.now
    simulation.arrive(Client(0, work(1, 100, prices), stops_after=5), start)
    simulation.arrive(Client(1, work(1, 10, prices), tries=2), start + 1 * MS)  # is booked after 500 ms
    simulation.arrive(Client(2, work(1, 10, prices), tries=1), start + 100 * MS)  # ends before
    simulation.arrive(Client(3, work(1, 100, prices), tries=1, late_ns=None), start + 200 * MS)  # would not
    simulation.run()
    outcome = {client.name: (client.outcome, len(client.refusals)) for client in simulation.done}
    assert outcome == {0: ("served", 0), 1: ("served", 1), 2: ("served", 0), 3: ("away", 1)}


def _distrust(simulation: Simulation) -> None:
    """Sender 0 has let all its bookings lapse."""
    for _ in range(40):
        simulation.admission.attendance.stayed_away(0)
    assert not simulation.admission.attendance.trusts(0)


@settings(max_examples=60, deadline=None)
@given(PRICES, st.lists(st.tuples(st.integers(1, 3), st.integers(1, 60), st.integers(0, 200 * MS)), max_size=12))
def test_whoever_comes_at_the_promised_time_is_served_however_many_bookings_it_let_lapse_before(prices, requests):
    simulation = Simulation(SLOTS, prices, 1, lazy=0.5)
    _distrust(simulation)
    for name, (chunks, tokens, late) in enumerate(requests):  # who was only told a time may have to come more than once
        simulation.arrive(Client(7 * name, work(chunks, tokens, prices), LIMITS, late, tries=6), simulation.now)
    simulation.run()
    assert simulation.broken == []
    assert [client.outcome for client in simulation.done] == ["served"] * len(requests)


def test_what_is_held_for_who_lets_bookings_lapse_is_held_until_somebody_else_comes():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(1, prices, 1)
    _distrust(simulation)
    start = simulation.now
    simulation.arrive(Client(0, work(1, 20, prices)), start)
    simulation.arrive(Client(7, work(1, 20, prices), late_ns=None), start + 1 * MS)
    simulation.arrive(Client(1, work(1, 200, prices), tries=1), start + 110 * MS)
    simulation.run()
    assert {client.name: client.outcome for client in simulation.done} == {0: "served", 7: "away", 1: "served"}


def test_a_handful_of_kept_bookings_makes_a_sender_believed_again():
    attendance = Attendance()
    for _ in range(1000):
        attendance.stayed_away("a")
    for _ in range(6):
        attendance.came("a")
    assert attendance.trusts("a")


def test_one_sender_cannot_hold_everything_that_can_be_booked():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(4, prices, 1)
    start = simulation.now
    simulation.arrive(Client(1, work(1, 100, prices), late_ns=None), start)
    for name in range(7, 7 * 100, 7):
        simulation.arrive(Client(name, work(1, 100, prices), late_ns=None), start + 1)
    simulation.at(start + 2 * MS, lambda: None)
    most = []
    simulation.run(lambda: most.append(simulation.admission.tickets.of(0)))
    assert max(most) <= 12


def test_priority_finds_its_reserved_slot_when_all_others_are_taken():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(4, prices, 1, reserved=1)
    start = simulation.now
    for name in range(4):
        simulation.arrive(Client(name, work(1, 50, prices), late_ns=None), start)
    simulation.arrive(Client(9, work(1, 50, prices), tier=Tier.PRIORITY), start + 1)
    simulation.run()
    outcome = {client.name: client.outcome for client in simulation.done}
    assert (outcome[3], outcome[9]) == ("away", "served")


def test_flex_leaves_an_eighth_of_the_slots_to_others():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(8, prices, 1)
    for name in range(8):
        simulation.arrive(Client(name, work(1, 50, prices), tier=Tier.FLEX, late_ns=None), simulation.now)
    simulation.run()
    assert sum(client.outcome == "served" for client in simulation.done) == 7


def _most_booked(tier: Tier) -> int:
    """At once, of clients that never come back."""
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(4, prices, 1)
    for name in range(60):
        client = Client(name, work(1, 20, prices), tier=tier if name >= 4 else Tier.DEFAULT, late_ns=None)
        simulation.arrive(client, simulation.now + name * 20 * MS)
    most = []
    simulation.run(lambda: most.append(len(simulation.calendar.bookings)))
    return max(most)


def test_flex_is_booked_for_half_of_what_can_be():
    assert _most_booked(Tier.FLEX) == 6 < _most_booked(Tier.DEFAULT)


def test_prefill_is_admitted_only_as_far_as_the_cadence_of_running_streams_allows():
    prices = Prices(5 * MS, (0, 40 * MS), 0, 1.0, 45 * MS)
    simulation = Simulation(2, prices, 1)
    start = simulation.now
    strict = msgspec.structs.replace(LIMITS, per_token_ns=20 * MS)
    simulation.arrive(Client(0, work(1, 100, prices), strict), start)
    simulation.arrive(Client(1, work(1, 10, prices)), start + 100 * MS)
    simulation.run()
    first, second = simulation.done
    assert (first.name, second.name, second.refusals) == (0, 1, ["busy"])
    assert second.admitted_ns >= first.ended_ns - 5 * MS


def test_a_patient_request_is_not_booked_beyond_its_own_deadline():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(1, prices, 1)
    start = simulation.now
    hurried = Limits(5_000 * MS, 250 * MS, 300 * MS, 300 * MS)
    simulation.arrive(Client(0, work(1, 100, prices)), start)
    simulation.arrive(Client(1, work(1, 10, prices), hurried), start + 1)
    simulation.run()
    assert {client.name: client.refusals for client in simulation.done}[1] == ["BeyondHorizon"]


def _within(deadline_ms: int) -> Limits:
    """The limits of a client that states its own deadline, as ``x-zl-deadline-ms`` does."""
    return Limits(5_000 * MS, 250 * MS, deadline_ms * MS, deadline_ms * MS)


def test_whoever_states_a_deadline_is_booked_where_it_leaves_time_enough():
    prices = Prices(5 * MS, (0, 0), 0, 1.0, 5 * MS)
    simulation = Simulation(1, prices, 1)
    start = simulation.now
    simulation.arrive(Client(0, work(1, 100, prices)), start)
    simulation.arrive(Client(1, work(1, 10, prices), _within(3_000)), start + 1)
    simulation.run()
    outcome = {client.name: (client.outcome, client.booked) for client in simulation.done}
    assert outcome[1] == ("served", 1)


@settings(max_examples=100, deadline=None)
@given(
    PRICES,
    st.lists(
        st.tuples(st.integers(0, 100), st.integers(1, 3), st.integers(1, 40), st.integers(100, 4_000)), max_size=40
    ),
    st.integers(0, 1000),
    st.floats(0.3, 1.0),
)
def test_whoever_is_booked_and_comes_at_that_time_ends_within_its_own_deadline(prices, arrivals, seed, lazy):
    simulation = Simulation(SLOTS, prices, seed, lazy=lazy)
    when = simulation.now
    for name, (gap, chunks, tokens, deadline_ms) in enumerate(arrivals):
        when += gap * MS
        simulation.arrive(Client(name, work(chunks, tokens, prices), _within(deadline_ms)), when)
    simulation.run()
    assert simulation.broken == []
    assert all(
        client.ended_ns <= client.came_ns + client.limits.end_ns for client in simulation.done if client.ended_ns
    )


EVEN = Prices(MS, (0, 0), 0, 1.0, MS)  # whoever is told a time comes just when somebody who is booked begins


@settings(max_examples=30, deadline=None)
@example(EVEN, 3, 20, 0, 0.75)
@example(EVEN, 4, 20, 1, 0.75)
@given(PRICES, st.integers(1, SLOTS), st.integers(20, 60), st.integers(0, 1000), st.floats(0.3, 1.0))
def test_whoever_keeps_coming_at_the_told_time_is_served_before_eight_refusals(prices, more, tokens, seed, lazy):
    """Workers of one sender who share fewer slots than they are, each with a call under way at all times."""
    simulation = Simulation(SLOTS, prices, seed, lazy=lazy)
    workers = SLOTS + more
    patient = _within(60_000)

    def next_call(name: int) -> None:
        simulation.arrive(Client(name, work(1, tokens, prices), patient, tries=8), simulation.now)

    for worker in range(workers):
        next_call(7 * worker)
    begun, calls = workers, 20 * workers

    def go_on() -> None:
        nonlocal begun
        while begun < min(calls, workers + len(simulation.done)):
            next_call(7 * begun)
            begun += 1

    simulation.run(go_on)
    assert simulation.broken == []
    assert [client.outcome for client in simulation.done] == ["served"] * calls


@settings(max_examples=100, deadline=None)
@given(PRICES, ARRIVALS, ARRIVALS, st.integers(0, 1000), st.floats(0.3, 1.0), GRACES_MS)
def test_whoever_comes_back_with_other_limits_is_served_within_these_or_refused(
    prices, arrivals, others, seed, lazy, grace_ms
):
    simulation = Simulation(SLOTS, prices, seed, lazy=lazy, grace_ms=grace_ms)
    when = simulation.now
    for name, (gap, chunks, tokens, late, stops, limits, tier) in enumerate(arrivals):
        when += gap * MS
        client = Client(name, work(chunks, tokens, prices), limits, late, stops, tier)
        client.other_limits = others[name % len(others)][5]
        simulation.arrive(client, when)
    simulation.run()
    assert simulation.broken == []
