"""The table of slots, with a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from zerolayer.guard.deadline import Refusal, SlotTable

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 5 * MS

    def __call__(self) -> int:
        return self.now


def _full(*bounds_ms: int) -> tuple[SlotTable, Clock]:
    clock = Clock()
    table = SlotTable(len(bounds_ms), clock)
    for bound in bounds_ms:
        table.claim(bound * MS)
    return table, clock


def test_each_slot_is_claimed_once():
    table = SlotTable(3, Clock())
    assert sorted(table.claim(MS) for _ in range(3)) == [0, 1, 2]
    assert table.free == 0


def test_a_refusal_names_the_first_slot_to_end():
    table, _ = _full(70, 30, 50)
    assert table.claim(MS) == Refusal(30)


def test_the_wait_is_rounded_up_and_shrinks_as_time_passes():
    table, clock = _full(30)
    clock.now += 10 * MS + 1
    assert table.claim(MS) == Refusal(20)


def test_a_bound_that_was_missed_is_expected_to_be_missed_by_as_much_again():
    table, clock = _full(30)
    clock.now += 50 * MS
    assert table.claim(MS) == Refusal(20)


def test_the_wait_is_never_zero():
    table, clock = _full(30)
    clock.now += 30 * MS
    assert table.claim(MS) == Refusal(1)


def test_tightening_brings_the_end_forward_and_never_back():
    table, _ = _full(30)
    table.tighten(0, 10 * MS)
    table.tighten(0, 90 * MS)
    assert table.next_free_ms() == 10


def test_releasing_twice_frees_once():
    table, _ = _full(30, 30)
    table.release(0)
    table.release(0)
    assert table.free == 1


def test_a_free_slot_has_no_wait():
    assert SlotTable(1, Clock()).next_free_ms() == 0


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_wait_is_always_a_positive_integer(bound_ns, passed_ns):
    clock = Clock()
    table = SlotTable(1, clock)
    table.claim(bound_ns)
    clock.now += passed_ns
    refusal = table.claim(0)
    assert isinstance(refusal, Refusal)
    assert refusal.retry_after_ms >= 1


class AnyUse(RuleBasedStateMachine):
    """Whatever the order of claims and releases, no slot is held twice and none is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(3, Clock())
        self.held: set[int] = set()

    @rule(bound=st.integers(0, 100))
    def claim(self, bound: int) -> None:
        claimed = self.table.claim(bound)
        assert isinstance(claimed, Refusal) == (len(self.held) == 3)
        if isinstance(claimed, int):
            assert claimed not in self.held
            self.held.add(claimed)

    @rule(slot=st.integers(0, 2))
    def release(self, slot: int) -> None:
        self.table.release(slot)
        self.held.discard(slot)

    @invariant()
    def all_slots_are_accounted_for(self) -> None:
        assert self.table.free + self.table.taken == 3
        assert self.table.taken == len(self.held)


TestAnyUse = AnyUse.TestCase
