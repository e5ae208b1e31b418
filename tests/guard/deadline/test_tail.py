"""Whether others end so soon that a prompt is better read after that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.guard.deadline.tail import NEAR_STEPS, is_worth_waiting

STEP, CHUNK = 20, 80


@pytest.mark.parametrize(
    ("left", "held", "waits"),
    [
        ([1], 1, True),  # a chunk for one, against a step of one who is held and of its slot
        ([2], 1, False),
        ([1], 2, False),
        ([1, 2, 3, 4], 1, True),  # the end of a pulse: one in each step
        ([4, 4, 4], 1, True),
        ([4, 4], 1, False),
        ([], 1, False),
        ([NEAR_STEPS + 1] * 64, 1, False),
    ],
)
def test_a_prompt_waits_where_it_would_keep_up_more_than_it_loses(left, held, waits):
    assert is_worth_waiting(left, held, STEP, CHUNK) is waits


def test_nobody_waits_before_a_step_was_seen_nor_for_a_chunk_that_costs_nothing():
    assert not is_worth_waiting([1, 1, 1], 1, 0, CHUNK)
    assert not is_worth_waiting([1, 1, 1], 1, STEP, 0)


@given(st.lists(st.integers(0, 40)), st.integers(0, 16), st.integers(1, 50), st.integers(0, 500))
def test_more_who_are_held_never_make_it_worth_more(left, held, step, chunk):
    assert is_worth_waiting(left, held, step, chunk) >= is_worth_waiting(left, held + 1, step, chunk)
