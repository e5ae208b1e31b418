"""Whether others end so soon that a prompt is better read after that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.guard.deadline.tail import NEAR_STEPS, is_worth_waiting

STEP, LONE, CHUNK = 20, 5, 100


def _waits(left, held, free, *, step=STEP, lone=LONE, chunk=CHUNK):
    return is_worth_waiting(left, held, free, step_ns=step, lone_ns=lone, chunk_ns=chunk)


@pytest.mark.parametrize(
    ("left", "held", "free", "waits"),
    [
        ([1], 1, 1, True),  # a chunk for one, against a step of one who is held and of its slot
        ([2], 1, 1, False),
        ([1], 2, 1, False),
        ([1, 2, 3, 4], 1, 1, True),  # the end of a pulse: one in each step
        ([4, 4, 4], 1, 1, True),
        ([4, 4], 1, 1, False),
        (range(1, 15), 4, 2, True),  # the end of a pulse, and of those after it some have come already
        ([6, 6, 6, 6], 3, 3, True),  # three prompts would be read before each of them ends,
        ([6, 6, 6, 6], 3, 1, False),  # but one where there is a slot for one
        ([], 1, 1, False),
        ([NEAR_STEPS + 1] * 64, 1, 1, False),
    ],
)
def test_prompts_wait_where_they_would_keep_up_more_than_they_lose(left, held, free, waits):
    assert _waits(left, held, free) is waits


def test_they_wait_less_where_a_step_takes_as_long_with_fewer_slots():
    assert _waits([4, 4, 4], 1, 1, lone=5)
    assert not _waits([4, 4, 4], 1, 1, lone=20)


def test_nobody_waits_before_a_step_was_seen_nor_for_a_chunk_that_costs_nothing():
    assert not _waits([1, 1, 1], 1, 1, step=0)
    assert not _waits([1, 1, 1], 1, 1, chunk=0)


LEFT, COUNTS, TIMES = st.lists(st.integers(0, 40)), st.integers(0, 16), st.tuples(*[st.integers(1, 500)] * 3)


@given(LEFT, COUNTS, COUNTS, TIMES)
def test_more_who_are_held_never_make_it_worth_more(left, held, free, times):
    step, lone, chunk = times
    more, less = (_waits(left, held + one, free, step=step, lone=lone, chunk=chunk) for one in (0, 1))
    assert more >= less


@given(LEFT, COUNTS, COUNTS, TIMES)
def test_more_slots_that_are_free_never_make_it_worth_less(left, held, free, times):
    step, lone, chunk = times
    less, more = (_waits(left, held, free + one, step=step, lone=lone, chunk=chunk) for one in (0, 1))
    assert more >= less
