"""A promise made by one process is kept by the next, at the time that the client was told."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import RetryLater
from zerolayer.guard.deadline.admission import Admission, Grant, NoSlot, Wish
from zerolayer.guard.deadline.booking import Booking, Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.succession import LONG_NS, Engagements, Predecessor, engagements, take_on, typical_ends
from zerolayer.guard.deadline.tickets import Asker
from zerolayer.model.cost import Prices
from zerolayer.wire.schema import Tier

MS = 1_000_000
CHUNK = 128
LIMITS = Limits(20_000 * MS, 2_000 * MS, 60_000 * MS)
PRICES = Prices(step_ns=5 * MS, chunk_ns=(0, 20 * MS), reserve_ns=5 * MS, stall_ns=25 * MS)


class Cost:
    def __init__(self, prices: Prices) -> None:
        self._prices = prices

    def prices(self) -> Prices:
        return self._prices


class Process:
    """Admission of one process. ``speed``: its steps take so many times as long."""

    def __init__(self, slots: int = 2, speed: float = 1.0, now: int = 10**12) -> None:
        self.now = now
        self.prices = msgspec.structs.replace(
            PRICES, step_ns=int(PRICES.step_ns * speed), chunk_ns=(0, int(20 * MS * speed))
        )
        cost = Cost(self.prices)
        self.calendar = Calendar(slots, lambda: self.now, cost.prices)
        self.admission = Admission(self.calendar, cost, lambda: self.now, "busy for {ms} ms")  # type: ignore[arg-type]

    def work(self, prompt_tokens: int, tokens: int) -> Work:
        chunks = -(-prompt_tokens // CHUNK)
        return Work(chunks, chunks * self.prices.chunk_ns[-1], self.prices.chunk_ns[-1], tokens)

    def ask(self, body: bytes, tokens: int = 50, asker: Asker | None = None) -> Grant | Booking | NoSlot:
        work = self.work(100, tokens)
        wish = Wish(work, work, work, LIMITS, Tier.DEFAULT, ("chat.completions", body))  # as the guard names requests
        return self.admission.ask(wish, asker or Asker("alice"))

    def fill(self) -> None:
        for slot in range(self.calendar.slots):
            granted = self.ask(b"runs %d" % slot, 200)
            assert isinstance(granted, Grant)
            self.calendar.confirm(granted.slot, self.work(100, 200))

    def ends(self) -> tuple[int, ...]:
        return typical_ends(self.calendar, self.prices, self.now)


def hand_over(old: Process, new: Process) -> None:
    """As it travels."""
    data = msgspec.msgpack.encode(engagements(old.admission, CHUNK))
    predecessor = Predecessor(new.calendar, lambda: new.prices)
    predecessor.update([end - old.now + new.now for end in old.ends()], new.now)
    given_ = msgspec.msgpack.decode(data, type=Engagements).moved(new.now - old.now)
    assert take_on(new.admission, given_, new.work) == len(given_.promises)
    new.predecessor = predecessor  # type: ignore[attr-defined]


@pytest.mark.parametrize("speed", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("shift", [0, -(10**11), 10**11])
def test_whoever_was_told_a_time_is_served_when_it_comes_then(speed, shift):
    old = Process()
    old.fill()
    refusal = old.ask(b"later")
    told = refusal.retry_after_ms * MS
    new = Process(speed=speed, now=old.now + shift)
    hand_over(old, new)
    new.now += told
    new.predecessor.over(new.now)
    answer = new.ask(b"later")
    if isinstance(answer, Booking):
        new.now = answer.start_ns
        answer = new.admission.resume(answer)
    assert isinstance(answer, Grant)
    assert answer.booked


NAMES = st.recursive(
    st.one_of(st.text(max_size=5), st.binary(max_size=5), st.integers(-(2**62), 2**62)),
    lambda names: st.lists(names, max_size=3).map(tuple),
    max_leaves=4,
)


@given(NAMES.filter(bool), NAMES)
def test_a_booking_is_found_by_whatever_it_was_filed_under(sender, request):
    old, new = Process(), Process()
    booking = old.calendar.book(old.work(100, 50), Terms(old.now + MS, LONG_NS, LONG_NS, LONG_NS))
    old.admission.tickets.file(booking, sender, request, "ticket")
    hand_over(old, new)
    assert [booking.key for booking in new.calendar.bookings] == [(sender, request)]


def test_a_ticket_is_worth_as_much_over_there():
    old, new = Process(), Process()
    old.fill()
    refusal = old.ask(b"later", asker=Asker("alice", retry=False))
    hand_over(old, new)
    assert [booking.ticket for booking in new.admission.tickets] == [refusal.ticket]


def test_nobody_else_gets_the_slot_meanwhile():
    old = Process(slots=1)
    old.fill()
    old.ask(b"later")
    new = Process(slots=1)
    hand_over(old, new)
    assert isinstance(new.ask(b"somebody else", asker=Asker("bob")), RetryLater)


def test_slots_of_the_old_process_are_taken_until_it_says_that_they_ended():
    old, new = Process(), Process()
    old.fill()
    hand_over(old, new)
    assert new.calendar.free == 0
    new.predecessor.update(old.ends()[:1], new.now)
    assert new.calendar.free == 1
    new.predecessor.over(new.now)
    assert new.calendar.free == 2


def test_an_engine_that_rests_does_not_count_the_old_processes_steps_as_its_own():
    old, new = Process(), Process()
    old.fill()
    hand_over(old, new)
    assert not new.calendar.confirmed


def test_times_told_while_the_old_process_drains_follow_what_it_says():
    old, new = Process(slots=1), Process(slots=1)
    old.fill()
    hand_over(old, new)
    first = new.calendar.next_open_ms()
    new.now += 100 * MS
    new.predecessor.update(old.ends(), new.now)
    assert first - 115 <= new.calendar.next_open_ms() <= first - 85


def test_who_lets_bookings_lapse_is_not_trusted_by_the_next_process_either():
    old, new = Process(), Process()
    for _ in range(20):
        old.admission.attendance.stayed_away("mallory")
        old.admission.attendance.came(b"a key's id")
    hand_over(old, new)
    assert not new.admission.attendance.trusts("mallory")
    assert new.admission.attendance.trusts(b"a key's id")


@given(st.integers(1, 12), st.floats(0.5, 3.0), st.integers(1, 4))
def test_every_promise_has_its_place_and_all_can_be_kept(requests, speed, slots):
    old = Process(slots)
    old.fill()
    for number in range(requests):
        old.ask(b"%d" % number, 20 + 7 * number)
    new = Process(slots, speed)
    hand_over(old, new)
    told = sorted(booking.start_ns for booking in old.calendar.bookings)
    assert len(new.calendar.bookings) == len(told)
    assert all(booking.start_ns >= was for booking, was in zip(new.calendar.bookings, told, strict=True))
