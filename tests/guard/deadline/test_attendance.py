"""What is remembered of senders, and how it travels to another process."""

from __future__ import annotations

import pytest

from zerolayer.guard.deadline._native import Attendance


@pytest.fixture
def attendance() -> Attendance:
    return Attendance()


def test_a_sender_is_judged_on_evidence_and_not_on_its_first_misses(attendance):
    for _ in range(8):
        attendance.stayed_away("a")
    assert attendance.trusts("a")
    for _ in range(4):
        attendance.stayed_away("a")
    assert not attendance.trusts("a")


def test_senders_of_other_names_or_other_kinds_of_names_are_others(attendance):
    for _ in range(20):
        attendance.stayed_away("7")
    assert [attendance.trusts(name) for name in ("7", b"7", 7, "8")] == [False, True, True, True]


def test_what_was_seen_travels_with_the_names_as_they_were(attendance):
    for name in ("a", b"\x00key", 5, ("x", (b"y", -1)), "a"):
        attendance.came(name)
    heir = Attendance()
    for name, (kept, lapsed) in attendance.seen():
        heir.remember(name, kept, lapsed)
    assert heir.seen() == attendance.seen()
    assert [name for name, _ in heir.seen()] == [b"\x00key", 5, ("x", (b"y", -1)), "a"]


def test_the_sender_that_was_not_seen_for_longest_is_forgotten_first(attendance):
    for number in range(4097):
        attendance.came(number)
    names = [name for name, _ in attendance.seen()]
    assert (len(names), names[0], names[-1]) == (4096, 1, 4096)
