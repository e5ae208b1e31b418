"""All slots of a request or none, and a refusal leaves no trace."""

from __future__ import annotations

import pytest

from zerolayer.guard.deadline.booking import Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.model.cost import Prices

MS = 1_000_000
WORK = Work(1, 0, 0, 10)
RELAXED = Terms(0, 1_000 * MS, 1_000 * MS, 10_000 * MS)


@pytest.fixture
def calendar() -> Calendar:
    return Calendar(4, lambda: 0, lambda: Prices(step_ns=MS))


def test_each_answer_has_a_slot_of_its_own(calendar):
    assert len(set(calendar.claim_all(WORK, RELAXED, 3))) == 3
    assert calendar.free == 1


def test_too_few_free_slots_are_none(calendar):
    calendar.claim_all(WORK, RELAXED, 2)
    assert calendar.claim_all(WORK, RELAXED, 3) == []
    assert calendar.free == 2


def test_when_the_last_one_does_not_fit_all_are_given_back(calendar):
    chunk = Work(4, 4 * MS, MS, 1)  # four chunks each: the third one's come too late for its first token
    hurried = Terms(0, 16 * MS, 1_000 * MS, 10_000 * MS)
    assert len(calendar.claim_all(chunk, hurried, 1)) == 1
    calendar.release(calendar.slots - 4)
    before = calendar.free
    assert calendar.claim_all(chunk, hurried, 4) == []
    assert calendar.free == before
    assert calendar.is_feasible()


def test_a_refusal_takes_nothing_from_what_is_booked(calendar):
    for _ in range(4):
        calendar.claim(Work(1, 0, 0, 100), RELAXED)
    booking = calendar.book(Work(1, MS, MS, 10), RELAXED)
    assert booking is not None
    for slot in range(4):
        calendar.release(slot)
    spare = booking.spare_ns
    chunk = Work(4, 4 * MS, MS, 1)
    assert calendar.claim_all(chunk, Terms(0, 16 * MS, 1_000 * MS, 10_000 * MS), 4) == []
    assert booking.spare_ns == spare


def test_the_wait_for_several_is_that_of_the_slowest_of_them(calendar):
    for tokens in (10, 20, 30, 40):
        slot = calendar.claim(Work(1, 0, 0, tokens), RELAXED)
        calendar.confirm(slot, Work(1, 0, 0, tokens))
    waits = [calendar.next_open_ms(count) for count in (1, 2, 3, 4)]
    assert waits == sorted(waits)
    assert waits[0] < waits[3]


def test_a_slot_with_a_booking_is_not_told_as_open(calendar):
    for _ in range(4):
        calendar.claim(Work(1, 0, 0, 100), RELAXED)
    calendar.book(Work(1, MS, MS, 10), RELAXED)
    calendar.release(0)
    calendar.release(1)
    assert (calendar.free, calendar.open) == (2, 1)
