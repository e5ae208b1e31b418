"""What is compiled decides as its specification does (``specification/``), to the nanosecond, whatever is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import specification.admission
import specification.calendar
from arrivals import ARRIVALS, LATENESS, LEAVES, PRICES, SLOTS
from costed import Costed, Engine
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import LIMITS, MS, Client, Simulation
from specification.booking import Terms, Work

from zerolayer.guard.deadline.booking import Room
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import Limits
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier

COUNTS = st.integers(0, 9)
CLAIMS = ["claim", "claim", "confirm", "confirm", "step", "step", "step", "release", "ending", "skip", "shorten"]
PLANS = ["book", "book", "book", "void", "redeem", "redeem", "tell", "in the way"]
OPERATIONS = st.lists(
    st.tuples(st.sampled_from([*CLAIMS, *PLANS, "price", "wait"]), COUNTS, COUNTS, COUNTS), min_size=40, max_size=120
)
FIELDS = ["start_ns", "slot", "steps", "typical_ns", "need_ns", "weight_ns", "single_ns", "hold_ns"]
FLAGS = ["strict", "soft", "held"]


class Pair:
    """The compiled calendar and its specification, which are asked the same at the same time."""

    def __init__(self, slots: int, prices: Prices, reserved: int) -> None:
        self.now, self.prices = 1_000 * MS, prices
        kinds = (Calendar, specification.calendar.Calendar)
        self.both: list[Any] = [kind(slots, lambda: self.now, lambda: self.prices, reserved=reserved) for kind in kinds]
        self.claimed: dict[int, Work] = {}
        self.running: list[int] = []
        self.booked: list[tuple[Any, Any]] = []

    def ask(self, question: Callable[[Any, int], Any]) -> Any:
        """The answer, which must be both's."""
        compiled, specified = (question(calendar, each) for each, calendar in enumerate(self.both))
        assert compiled == specified
        return compiled

    def terms(self, kind: int) -> Terms:
        first, gap, end = [(5_000, 250, 60_000), (60, 250, 400), (200, 1, 2_000), (5_000, 250, 500)][kind % 4]
        patience = self.now + end * MS if kind > 7 else 1 << 62
        return Terms(self.now, first * MS, gap * MS, end * MS, patience, urgent=kind == 3)

    def work(self, chunks: int, tokens: int) -> Work:
        full = self.prices.chunk_ns[-1]
        return Work(chunks, max(0, chunks * full - full // 3), full, tokens)

    def state(self) -> None:
        """All that can be seen of a calendar."""
        for look in (
            lambda calendar: (calendar.free, calendar.open, calendar.taken, calendar.confirmed, calendar.booked_ns),
            lambda calendar: [calendar.next_open_ms(slots) for slots in {1, calendar.slots}],
            lambda calendar: (calendar.is_feasible(), calendar.ends(), calendar.late(self.now)),
            lambda calendar: [[getattr(each, field) for field in FIELDS + FLAGS] for each in calendar.bookings],
            lambda calendar: [each.spare_ns for each in calendar.bookings],
        ):
            self.ask(lambda calendar, _, look=look: look(calendar))

    def do(self, operation: str, a: int, b: int, c: int) -> None:
        work, terms = self.work(1 + a % 4, 1 + 3 * b), self.terms(c)
        if operation == "claim":
            self.ask(lambda calendar, _: calendar.fit(work, terms))
            slot = self.ask(lambda calendar, _: calendar.claim(work, terms))
            if slot >= 0:
                self.claimed[slot] = work
        elif operation == "confirm" and self.claimed:
            self._confirm(*list(self.claimed.items())[a % len(self.claimed)], b)
        elif operation == "step":
            self.now += (1 + a) * MS
            slot = self.running[b % len(self.running)] if self.running and c % 3 else -1
            self.ask(lambda calendar, _: calendar.on_step(slot, self.now, 1 + c % 2))
        elif operation == "release":
            self._release(a % self.both[0].slots)
        elif operation == "ending" and self.running:
            self.ask(lambda calendar, _: calendar.ending(self.running[a % len(self.running)]))
        elif operation == "shorten" and self.running:
            self.ask(lambda calendar, _: calendar.shorten(self.running[a % len(self.running)], self.work(b, c)))
        elif operation == "skip":
            self.ask(lambda calendar, _: calendar.skip(a % calendar.slots, 30 * b, 100))
        elif operation == "price":
            step, chunk = (1 + a) * MS, b * 5 * MS
            self.prices = Prices(step, (0, chunk), c * 3 * MS, 1.0 + a / 13, step + chunk)
        elif operation == "wait":
            self.now += a * b * 10 * MS
        else:
            self._plan(operation, work, terms, a, b)

    def _plan(self, operation: str, work: Work, terms: Terms, a: int, b: int) -> None:
        unit = 1 + a * MS
        spaced = (lambda start: -(-start // unit) * unit) if b % 2 else None
        if operation == "book":
            made = tuple(
                calendar.book(work, terms, spaced=spaced, soft=b % 3 == 0, room=Room(a % 3), waited=b % 4 == 1)
                for calendar in self.both
            )
            assert (made[0] is None) == (made[1] is None)
            if made[0] is not None:
                self.booked.append(made)
        elif operation == "tell":
            self.ask(lambda calendar, _: calendar.tell(work, terms, spaced=spaced))
        elif operation == "in the way":
            self._clear(work, terms)
        elif operation == "void" and self.booked:
            made = self.booked.pop(a % len(self.booked))
            self.ask(lambda calendar, each: calendar.void(made[each]))
        elif operation == "redeem" and self.booked:
            self._redeem(self.booked[a % len(self.booked)], late=b)

    def _clear(self, work: Work, terms: Terms) -> None:
        compiled = self.both[0].core().in_the_way(work, terms, self.now)
        specified = self.both[1].in_the_way(work, terms)
        pairs = dict(self.booked)
        assert [pairs[each] for each in compiled] == specified

    def _redeem(self, made: tuple[Any, Any], late: int) -> None:
        self.now = max(self.now, made[0].start_ns + late * MS)
        for each in made:
            each.held = True
        slot = self.ask(lambda calendar, each: calendar.redeem(made[each]))
        if slot >= 0:
            self.booked.remove(made)
            self.claimed[slot] = made[1].work

    def _confirm(self, slot: int, work: Work, more: int) -> None:
        true = Work(max(1, work.chunks + more % 3 - 1), work.chunk_ns, work.full_ns, max(1, work.tokens + more - 4))
        del self.claimed[slot]
        if self.ask(lambda calendar, _: calendar.confirm(slot, true)):
            self.running.append(slot)
        else:
            self._release(slot)

    def _release(self, slot: int) -> None:
        self.claimed.pop(slot, None)
        self.running = [each for each in self.running if each != slot]
        self.ask(lambda calendar, _: calendar.release(slot))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), PRICES, st.integers(0, 1), OPERATIONS)
def test_the_calendar_answers_as_specified_whatever_is_done_to_it(slots, prices, reserved, operations):
    pair = Pair(slots, prices, reserved)
    for operation in operations:
        pair.do(*operation)
        pair.state()


class Specified(Simulation):
    """The simulation by what is specified."""

    Calendar, Admission = specification.calendar.Calendar, specification.admission.Admission


class CostedBySpecification(Costed):
    Calendar, Admission, Work = specification.calendar.Calendar, specification.admission.Admission, Work


def _fates(simulation: Simulation) -> list[tuple[Any, ...]]:
    """What became of everybody, and when."""
    return [
        (each.name, each.outcome, each.refusals, each.booked, each.due_ns, each.admitted_ns, each.ended_ns)
        for each in simulation.done
    ]


@settings(max_examples=100, deadline=None)
@given(PRICES, ARRIVALS, LEAVES, st.integers(0, 1000), st.floats(0.3, 1.0), st.integers(0, 1), st.booleans())
def test_admission_decides_as_specified(prices, arrivals, leaves, seed, lazy, reserved, distrusted):
    runs = []
    for kind in (Simulation, Specified):
        simulation = kind(SLOTS, prices, seed, lazy=lazy, reserved=reserved)
        for _ in range(40 if distrusted else 0):
            simulation.admission.attendance.stayed_away(0)
        when = simulation.now
        for name, (gap, chunks, tokens, late, stops, limits, tier) in enumerate(arrivals):
            when += gap * MS
            full = prices.chunk_ns[-1]
            work = Work(chunks, chunks * full, full, tokens)
            client = Client(name, work, limits, late, stops, tier, leaves_ns=leaves[name], silent=name % 4 == 3)
            simulation.arrive(client, when)
        simulation.run()
        runs.append((_fates(simulation), simulation.broken))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("seed", range(8))
def test_long_overload_by_clients_of_all_kinds_goes_as_specified(seed):
    dice = random.Random(seed)
    step, chunk = dice.randint(1, 10), dice.randint(0, 40)
    prices = Prices(step * MS, (0, chunk * MS), dice.randint(0, 30) * MS, 1 + dice.random() / 2, (step + chunk) * MS)
    clients = []
    for number in range(300):
        chunks, tokens = dice.randint(1, 3), dice.choice([dice.randint(1, 40), 200])
        name = 7 * number + dice.randint(0, 2)  # of three senders
        work = Work(chunks, chunks * chunk * MS, chunk * MS, tokens)
        limits = dice.choice([LIMITS, Limits(900 * MS, 250 * MS, 3_000 * MS), Limits(5_000 * MS, 20 * MS, 60_000 * MS)])
        late, stops = (
            dice.choice([None, 0, 2 * MS, dice.randint(0, 20) * MS // 2, 200 * MS]),
            dice.choice([None, None, 5]),
        )
        clients.append((name, work, limits, late, stops, dice.choice(list(Tier)), dice.randint(1, 5)))
    gaps = [int(dice.expovariate(1) * 12 * step * MS / 4) for _ in clients]
    runs = []
    for kind in (Simulation, Specified):
        simulation = kind(SLOTS, prices, seed, lazy=0.7, reserved=seed % 2)
        for _ in range(12):
            simulation.admission.attendance.stayed_away(0)
        when = simulation.now
        for gap, client in zip(gaps, clients, strict=True):
            when += gap
            simulation.arrive(Client(*client), when)
        simulation.run()
        runs.append((_fates(simulation), simulation.broken))
    assert runs[0] == runs[1]


@settings(max_examples=40, deadline=None)
@given(
    PRICES,
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 3), st.integers(1, 40), LATENESS, st.integers(100, 4_000)),
        max_size=60,
    ),
    st.sampled_from(list(Tier)),
)
def test_patient_clients_of_every_tier_are_told_the_same(prices, arrivals, tier):
    runs = []
    for kind in (Simulation, Specified):
        simulation = kind(SLOTS, prices, 3, lazy=0.7)
        when = simulation.now
        for name, (gap, chunks, tokens, late, deadline_ms) in enumerate(arrivals):
            when += gap * MS
            full = prices.chunk_ns[-1]
            limits = Limits(LIMITS.first_token_ns, LIMITS.per_token_ns, deadline_ms * MS, deadline_ms * MS)
            work = Work(chunks, chunks * full, full, tokens)
            simulation.arrive(Client(name, work, limits, late, None, tier, tries=6), when)
        simulation.run()
        runs.append(_fates(simulation))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("slots", [4, 16])
def test_a_pulse_and_an_overload_go_as_specified_with_prices_that_learn(slots):
    runs = []
    for kind in (Costed, CostedBySpecification):
        service = kind(Engine(slots=slots), 1)
        when = service.now
        for name in range(64):
            service.come(name, when + name * 200_000)
        for name in range(64, 120):
            when += int(service.random.expovariate(20) * 1e9)
            service.come(name, when)
        service.run()
        runs.append(_fates(service))
    assert runs[0] == runs[1]
