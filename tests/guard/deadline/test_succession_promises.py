"""A service goes on in another process, or on another model, at some moment: what was promised is kept, or told anew.

Two calendars in fake time (``simulation.py``): the old one's requests end there, and everybody else comes to the new
one, whose engine is quicker or slower.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from arrivals import LATENESS, PRICES, TIGHT
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import LIMITS, MS, Client, Simulation, work

from zerolayer.guard.deadline.booking import Booking
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.succession import Engagements, Predecessor, engagements, take_on, typical_ends
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier

SLOTS = 2
CHUNK = 64
TOLD_NS = 50 * MS  # between two times that the old process says what still runs


class Process(Simulation):
    """One side."""

    def work(self, prompt_tokens: int, tokens: int) -> object:
        return work(-(-prompt_tokens // CHUNK), tokens, self.prices)


class Change:
    """``old`` runs until ``at_ns``; then ``new`` takes everybody."""

    def __init__(self, old: Process, new: Process, at_ns: int) -> None:
        self.old, self.new = old, new
        while old.next_ns is not None and old.next_ns < at_ns:
            old.go_on()
        held = {id(client) for _, client, _ in old._held}
        new.now = old.now = max(old.now, at_ns)
        for booking in [each for each in old.calendar.bookings if each.held]:
            self._put_off(booking)
        self.told = {each.ticket: each.start_ns for each in old.calendar.bookings}
        data = msgspec.msgpack.encode(engagements(old.admission, CHUNK))
        given_ = msgspec.msgpack.decode(data, type=Engagements)
        for booking in list(old.admission.tickets):
            old.admission.void(booking)
        self.predecessor = Predecessor(new.calendar, new.costs.prices)
        self._hear()
        self.fitted = take_on(new.admission, given_, new.work)
        self.moved = {each.ticket: each for each in new.calendar.bookings}
        assert not held.intersection(id(client) for _, client, _ in old._held)
        for when, client, booked, again in old.coming():
            self._comes(client, booked, again, when)

    def _put_off(self, booking: Booking) -> None:
        """Whoever is held asks the new process at once."""
        booking.held = False
        (entry,) = [each for each in self.old._held if each[0] is booking]
        self.old._held.remove(entry)
        self.old.at(self.old.now, self.old._ask, entry[1], booking, True)

    def _comes(self, client: Client, booked: Booking | None, again: bool, when: int) -> None:
        prices = self.new.prices
        client.work = work(client.work.chunks, client.work.tokens, prices)
        mine = None if booked is None else self.moved.get(booked.ticket)
        if mine is not None and booked is not None and mine.start_ns > booked.start_ns:
            mine = None  # it is told the later start when it comes
        self.new.at(max(when, self.new.now), self.new._ask, client, mine, again)

    def _hear(self) -> None:
        ends = typical_ends(self.old.calendar, self.old.costs.prices(), self.old.now)
        self.predecessor.update(ends, self.new.now)
        if self.old._slots:
            self.new.at(self.new.now + TOLD_NS, self._hear)

    def run(self) -> None:
        """To the end of both."""
        while nexts := [each for each in (self.old, self.new) if each.next_ns is not None]:
            first = min(nexts, key=lambda each: each.next_ns)
            first.go_on()
        self.predecessor.over(self.new.now)


def change(old: Prices, new: Prices, arrivals: list[tuple], after_ms: int, seed: int) -> Change:
    processes = [Process(SLOTS, prices, seed, lazy=0.8) for prices in (old, new)]
    when = processes[0].now
    for name, (gap, chunks, tokens, late, stops, limits, tier) in enumerate(arrivals):
        when += gap * MS
        processes[0].arrive(Client(name, work(chunks, tokens, old), limits, late, stops, tier), when)
    return Change(*processes, processes[0].now + after_ms * MS)


CROWDS = st.lists(
    st.tuples(
        st.integers(0, 40),  # ms after the one before
        st.integers(1, 4),  # chunks
        st.integers(20, 120),  # tokens
        LATENESS,
        st.one_of(st.none(), st.integers(1, 60)),  # tokens after which it stops early
        st.sampled_from([LIMITS, Limits(2_000 * MS, 250 * MS, 6_000 * MS)]),
        st.sampled_from(Tier),
    ),
    min_size=6,
    max_size=30,
)
CHANGES = (PRICES, PRICES, CROWDS, st.integers(50, 800), st.integers(0, 1000))


@settings(max_examples=80)
@given(*CHANGES)
def test_no_start_is_moved_forward_and_all_that_are_moved_can_be_kept(old, new, arrivals, after_ms, seed):
    moved = change(old, new, arrivals, after_ms, seed)
    assert set(moved.moved) <= set(moved.told)
    assert len(moved.moved) == moved.fitted
    assert all(booking.start_ns >= moved.told[ticket] for ticket, booking in moved.moved.items())
    assert moved.new.calendar.is_feasible()
    assert list(moved.old.admission.tickets) == []


@settings(max_examples=80)
@given(*CHANGES)
def test_everybody_is_served_once_or_refused_and_no_start_that_was_told_is_broken(old, new, arrivals, after_ms, seed):
    moved = change(old, new, arrivals, after_ms, seed)
    moved.run()
    assert (moved.old.broken, moved.new.broken) == ([], [])
    assert sorted(client.name for each in (moved.old, moved.new) for client in each.done) == list(range(len(arrivals)))


@settings(max_examples=60)
@given(*CHANGES)
def test_nothing_of_either_is_left(old, new, arrivals, after_ms, seed):
    moved = change(old, new, arrivals, after_ms, seed)
    moved.run()
    for each in (moved.old, moved.new):
        each.admission.sweep(each.now + 10**12)
        assert (each.calendar.taken, len(each.calendar.bookings), len(each.admission.tickets)) == (0, 0, 0)


@given(*CHANGES, st.integers(-(10**12), 10**12))
def test_by_whose_clock_they_travel_makes_no_difference(old, new, arrivals, after_ms, seed, ahead_ns):
    given_ = engagements(change(old, new, arrivals, after_ms, seed).new.admission, CHUNK)
    there = given_.moved(ahead_ns)
    assert [each.start_ns - ahead_ns for each in there.promises] == [each.start_ns for each in given_.promises]
    assert there.moved(-ahead_ns) == given_


def _prices(dice: random.Random) -> Prices:
    step, chunk = dice.randint(1, 10), dice.randint(0, 40)
    return Prices(step * MS, (0, chunk * MS), dice.randint(0, 30) * MS, dice.uniform(1, 1.5), (step + chunk) * MS)


@pytest.mark.parametrize("seed", range(60, 130))
def test_whoever_is_held_for_a_start_that_moved_ends_within_its_own_limits(seed):
    """Limits leave hardly more than some need; where the other prices leave less, it is decided anew when it comes."""
    dice = random.Random(seed)
    several = [LIMITS, Limits(2_000 * MS, 250 * MS, 6_000 * MS), Limits(900 * MS, 250 * MS, 3_000 * MS), TIGHT]
    arrivals = [
        (
            dice.randint(0, 40),
            dice.randint(1, 4),
            dice.randint(20, 120),
            dice.choice([None, dice.randint(-5 * MS, 250 * MS), -5 * MS, 2 * MS, 250 * MS]),
            dice.choice([None, dice.randint(1, 60)]),
            dice.choice(several),
            dice.choice(list(Tier)),
        )
        for _ in range(dice.randint(6, 30))
    ]
    moved = change(_prices(dice), _prices(dice), arrivals, dice.randint(50, 800), seed)
    moved.run()
    assert [each for each in moved.old.broken + moved.new.broken if "late" in each or "did not fit" in each] == []
