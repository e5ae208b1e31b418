"""What load does to those who are admitted, to bookings and to the engine's use, in fake time."""

from __future__ import annotations

import statistics

import pytest
from costed import Costed, Engine
from simulation import LIMITS, MS, Client, Simulation, work

from zerolayer.model.cost import Prices

PULSE = 64
BUNDLED = Engine()
LEAN = Engine(one=3.6, full=19.5, chunk=62.0)  # the bundled model's later figures
SLOW_READER = Engine(one=3.6, full=19.0, chunk=87.0)  # and those of a disturbed machine
QUICK = Engine(one=5.0, full=5.3, chunk=3.0)


def _pulse(engine: Engine, seed: int = 1, *, slowness: float = 1.0, **given: int) -> Costed:
    """``slowness`` begins with the pulse: nobody could know of it."""
    service = Costed(engine, seed, **given)
    for name in range(PULSE):
        service.come(name, service.now + name * 200_000)
    service.slowness = slowness
    service.run()
    return service


def _ratio(clients: list[Client]) -> float:
    """P99 over P50 of the time from the send of the attempt that was admitted to the end."""
    whole = sorted(client.ended_ns - client.admitted_ns for client in clients)
    return whole[int(len(whole) * 0.99)] / statistics.median(whole)


@pytest.mark.parametrize("engine", [BUNDLED, QUICK])
def test_a_pulse_is_served_with_one_refusal_at_most_and_all_who_can_be_are_booked(engine):
    clients = _pulse(engine).done
    assert [client.outcome for client in clients] == ["served"] * PULSE
    assert max(len(client.refusals) for client in clients) == 1
    assert sum(client.booked for client in clients) == 3 * engine.slots


@pytest.mark.parametrize("engine", [BUNDLED, SLOW_READER, QUICK])
def test_the_engine_hardly_rests_while_a_pulse_is_served(engine):
    """No start is left for somebody who could not be booked where there is nobody like that."""
    service = _pulse(engine)
    span = max(client.ended_ns for client in service.done) - min(client.admitted_ns for client in service.done)
    assert PULSE / (span / 1e9) > 0.85 * engine.capacity(service.tokens)


def test_who_is_promised_more_than_it_needs_is_served_in_reasonable_time_too():
    service = _pulse(BUNDLED, promised=153)
    span = max(client.ended_ns for client in service.done) - min(client.admitted_ns for client in service.done)
    assert PULSE / (span / 1e9) > 0.6 * BUNDLED.capacity(service.tokens)


@pytest.mark.parametrize("engine", [BUNDLED, QUICK])
def test_those_of_a_pulse_that_are_admitted_take_about_as_long_as_each_other(engine):
    assert _ratio([client for client in _pulse(engine).done if not client.refusals]) < 1.3


@pytest.mark.parametrize("slowness", [1.0, 1.2, 1.3])
@pytest.mark.parametrize("engine", [LEAN, SLOW_READER])
def test_those_admitted_at_once_end_before_the_prompts_of_who_is_booked_after_them_are_read(engine, slowness):
    """The last ends at most 1.2 * 15 prompts after the first.

    So it is where the machine is slower than it was when the others were booked, and these come too early.
    """
    service = _pulse(engine, slowness=slowness)
    ends = [client.ended_ns / MS for client in service.done if not client.refusals]
    assert max(ends) - min(ends) < 0.5 * 1.2 * 15 * engine.step_ms(0, 1)
    assert service.broken == []


def test_those_admitted_at_once_take_as_long_as_their_steps_and_prompts_do():
    """The median takes at most 1.5 * T(16) / T(1) * S0."""
    engine = LEAN
    alone_ms = engine.step_ms(0, 1) + 63 * engine.one
    whole_ms = [(each.ended_ns - each.admitted_ns) / MS for each in _pulse(engine).done if not each.refusals]
    assert statistics.median(whole_ms) < 1.5 * engine.full / engine.one * alone_ms


@pytest.mark.parametrize("seed", [1, 2])
def test_under_overload_the_engine_is_used_and_hardly_anybody_waits_inside(seed):
    service, rate = Costed(BUNDLED, seed), BUNDLED.capacity(64)
    when, first = service.now, service.now
    for name in range(150):
        when += int(service.random.expovariate(1.5 * rate) * 1e9)
        service.come(name, when)
    service.run()
    served = [client for client in service.done if client.outcome == "served"]
    span = max(client.ended_ns for client in served) - first
    assert service.broken == []
    assert len(served) / (span / 1e9) > 0.85 * rate
    assert statistics.quantiles([client.waited_ns for client in served], n=10)[-1] < 400 * MS


@pytest.mark.parametrize(("engine", "used"), [(BUNDLED, 0.75), (LEAN, 0.85), (QUICK, 0.97)])
def test_slots_hardly_rest_under_overload_though_steps_of_fewer_rows_are_quicker_than_planned(engine, used):
    """Where slots rest, steps are quicker, so that what runs ends before what is booked in its slot."""
    service, rate = Costed(engine, 1), engine.capacity(64)
    when = first = service.now
    for name in range(600):
        when += int(service.random.expovariate(1.5 * rate) * 1e9)
        service.come(name, when)
    assert service.used(first + 3_000 * MS, when) >= used
    assert service.broken == []


@pytest.mark.parametrize("slots", [1, 2, 4, 16])
def test_bookings_do_not_starve_who_comes_only_once(slots):
    prices = Prices(5 * MS, (0, 5 * MS), 5 * MS, 1.05, 10 * MS)
    simulation = Simulation(slots, prices, 1, lazy=0.9)
    service_ns, when = (5 + 5 * 20 / slots) * MS, simulation.now
    for number in range(600):
        when += int(simulation.random.expovariate(2.5) * service_ns)
        once = number % 2 == 0
        tries, late = (1, None) if once else (3, 2 * MS)
        name = 7 * number + once
        simulation.arrive(Client(name, work(1, 20, prices), LIMITS, late, tries=tries), when)
    simulation.run()
    assert simulation.broken == []
    assert sum(client.outcome == "served" and client.name % 7 == 1 for client in simulation.done) >= 3
