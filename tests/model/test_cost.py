"""The cost table: upper bounds from what was measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.model.cost import CostTable


def table() -> CostTable:
    return CostTable(slots=16, chunk_tokens=100)


def test_before_the_first_measurement_nothing_is_predicted() -> None:
    assert table().predict_ns(prompt_tokens=500, max_tokens=100) == 0


def test_a_bound_is_never_below_a_measurement_of_the_window() -> None:
    cost = table()
    for elapsed in (5_000, 9_000, 7_000):
        cost.observe(decode_rows=16, prefill=False, elapsed_ns=elapsed)
    assert cost.decode_bound_ns() >= 9_000


def test_old_measurements_leave_the_window() -> None:
    cost = table()
    cost.observe(decode_rows=16, prefill=False, elapsed_ns=1_000_000)
    for _ in range(64):
        cost.observe(decode_rows=16, prefill=False, elapsed_ns=1_000)
    assert cost.decode_bound_ns() < 2_000


def test_a_bound_holds_with_all_slots_busy_though_only_one_was_measured() -> None:
    cost = table()
    cost.observe(decode_rows=1, prefill=False, elapsed_ns=1_000)
    assert cost.decode_bound_ns() >= 16 * 1_000


def test_a_step_with_a_chunk_is_never_cheaper_than_one_without() -> None:
    cost = table()
    cost.observe(decode_rows=16, prefill=False, elapsed_ns=9_000)
    cost.observe(decode_rows=16, prefill=True, elapsed_ns=3_000)
    assert cost.mixed_bound_ns() == cost.decode_bound_ns()


def test_a_request_costs_its_chunks_its_tokens_after_the_first_and_a_chunk_of_every_other_slot() -> None:
    cost = table()
    cost.observe(decode_rows=16, prefill=False, elapsed_ns=1_000)
    cost.observe(decode_rows=16, prefill=True, elapsed_ns=5_000)
    others = 15 * (cost.mixed_bound_ns() - cost.decode_bound_ns())
    expected = 3 * cost.mixed_bound_ns() + 9 * cost.decode_bound_ns() + others
    assert cost.predict_ns(prompt_tokens=201, max_tokens=10) == expected


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 2000))
def test_more_work_never_costs_less(prompt: int, more_prompt: int, tokens: int, more_tokens: int) -> None:
    cost = table()
    cost.observe(decode_rows=3, prefill=False, elapsed_ns=1_000)
    cost.observe(decode_rows=3, prefill=True, elapsed_ns=5_000)
    small = cost.predict_ns(prompt_tokens=prompt, max_tokens=tokens)
    assert cost.predict_ns(prompt_tokens=prompt + more_prompt, max_tokens=tokens + more_tokens) >= small


@given(st.integers(1, 70))
def test_every_occupancy_has_a_place_whatever_the_number_of_slots(slots: int) -> None:
    cost = CostTable(slots=slots, chunk_tokens=100)
    cost.observe(decode_rows=slots, prefill=True, elapsed_ns=1_000)
    assert cost.mixed_bound_ns() >= 1_000


def test_the_bound_of_a_step_is_that_of_its_own_kind_and_occupancy() -> None:
    cost = table()
    cost.observe(decode_rows=16, prefill=False, elapsed_ns=9_000)
    cost.observe(decode_rows=2, prefill=False, elapsed_ns=1_000)
    assert 1_000 <= cost.step_bound_ns(2, 0) < 9_000


def test_a_step_of_a_kind_that_never_ran_has_no_bound() -> None:
    cost = table()
    cost.observe(decode_rows=2, prefill=False, elapsed_ns=1_000)
    assert cost.step_bound_ns(2, 100) == 0
