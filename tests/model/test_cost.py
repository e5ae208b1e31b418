"""The cost table: upper bounds from what was measured."""

from __future__ import annotations

import pytest
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
        cost.observe(decode_rows=16, elapsed_ns=elapsed)
    assert cost.decode_bound_ns() >= 9_000


def test_old_measurements_leave_the_window() -> None:
    cost = table()
    cost.observe(decode_rows=16, elapsed_ns=1_000_000)
    for _ in range(64 + 8):  # these last are looked at before they are entered
        cost.observe(decode_rows=16, elapsed_ns=1_000)
    assert cost.decode_bound_ns() < 2_000


def test_a_bound_holds_with_all_slots_busy_though_only_one_was_measured() -> None:
    cost = table()
    cost.observe(decode_rows=1, elapsed_ns=1_000)
    assert cost.decode_bound_ns() >= 16 * 1_000


def test_a_step_with_a_chunk_is_never_cheaper_than_one_without() -> None:
    cost = table()
    cost.observe(decode_rows=16, elapsed_ns=9_000)
    cost.observe(decode_rows=16, prefill_tokens=100, elapsed_ns=3_000)
    assert cost.mixed_bound_ns() == cost.decode_bound_ns()


def test_a_prompt_that_ran_alone_is_dearer_among_others_by_a_full_step_at_most() -> None:
    """Else the first lone request would make every prompt look as long as thirty, and a server refuse everybody."""
    table = CostTable(slots=16, chunk_tokens=128)
    for _ in range(3):
        table.observe(decode_rows=16, elapsed_ns=45)
    table.observe(decode_rows=0, prefill_tokens=50, elapsed_ns=150)
    assert table.typical_ns(prefill_tokens=50) == 150 + 45


def test_a_request_costs_its_steps_its_chunks_and_one_reserve() -> None:
    cost = table()
    cost.observe(decode_rows=16, elapsed_ns=1_000)
    cost.observe(decode_rows=16, prefill_tokens=100, elapsed_ns=5_000)
    prices = cost.prices()
    chunks = 2 * prices.chunk(100) + prices.chunk(1)
    expected = 12 * prices.step_ns + chunks + prices.reserve_ns
    assert cost.predict_ns(prompt_tokens=201, max_tokens=10) == expected


def test_a_short_chunk_that_was_measured_is_cheaper_than_a_full_one() -> None:
    cost = table()
    cost.observe(decode_rows=16, elapsed_ns=1_000)
    cost.observe(decode_rows=16, prefill_tokens=100, elapsed_ns=9_000)
    assert cost.prices().chunk(4) == cost.prices().chunk(100)
    cost.observe(decode_rows=16, prefill_tokens=4, elapsed_ns=2_000)
    assert cost.prices().chunk(4) < cost.prices().chunk(100)


def test_outliers_are_paid_for_once_and_not_with_every_step() -> None:
    cost = table()
    for _ in range(20):
        for _ in range(63):
            cost.observe(decode_rows=16, elapsed_ns=1_000)
        cost.observe(decode_rows=16, elapsed_ns=20_000)
    thousand = 1000 * cost.prices().step_ns + cost.prices().reserve_ns
    assert thousand < 1000 * cost.decode_bound_ns() / 5
    assert thousand >= 1000 * 1_000 + 1000 // 64 * 19_000


def test_what_late_steps_spend_of_the_reserve_is_told_beside_what_is_left() -> None:
    cost, told = table(), []
    for _ in range(20):
        for _ in range(63):
            cost.observe(decode_rows=16, elapsed_ns=1_000)
            told.append(cost.prices())
        cost.observe(decode_rows=16, elapsed_ns=20_000)
    recent = told[-630:]
    spent, whole = [each.spent_ns for each in recent], [each.reserve_ns + each.spent_ns for each in recent]
    assert min(spent) == 0 < max(spent)
    assert max(whole) - min(whole) < max(spent) / 2


def test_a_machine_that_becomes_slower_promises_less() -> None:
    cost = table()
    for _ in range(200):
        cost.observe(decode_rows=16, elapsed_ns=1_000)
    before = cost.prices().step_ns
    for _ in range(200):
        cost.observe(decode_rows=16, elapsed_ns=2_000)
    assert cost.prices().step_ns >= 1.9 * before


@given(st.lists(st.integers(500, 5_000), min_size=200, max_size=400))
def test_what_is_promised_for_many_steps_covers_what_was_seen(steps: list[int]) -> None:
    """Seen again, the last hundred steps last no longer than the price of a hundred steps with its reserve."""
    cost = table()
    for elapsed in steps:
        cost.observe(decode_rows=16, elapsed_ns=elapsed)
    prices = cost.prices()
    assert sum(steps[-100:]) <= 1.5 * (100 * prices.step_ns + prices.reserve_ns)


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 2000))
def test_more_work_never_costs_less(prompt: int, more_prompt: int, tokens: int, more_tokens: int) -> None:
    cost = table()
    cost.observe(decode_rows=3, elapsed_ns=1_000)
    cost.observe(decode_rows=3, prefill_tokens=100, elapsed_ns=5_000)
    small = cost.predict_ns(prompt_tokens=prompt, max_tokens=tokens)
    assert cost.predict_ns(prompt_tokens=prompt + more_prompt, max_tokens=tokens + more_tokens) >= small


@given(st.integers(1, 70))
def test_every_occupancy_has_a_place_whatever_the_number_of_slots(slots: int) -> None:
    cost = CostTable(slots=slots, chunk_tokens=100)
    cost.observe(decode_rows=slots, prefill_tokens=100, elapsed_ns=1_000)
    assert cost.mixed_bound_ns() >= 1_000


def test_the_bound_of_a_step_is_that_of_its_own_kind_and_occupancy() -> None:
    cost = table()
    cost.observe(decode_rows=16, elapsed_ns=9_000)
    cost.observe(decode_rows=2, elapsed_ns=1_000)
    assert 1_000 <= cost.step_bound_ns(2, 0) < 9_000


def test_a_step_of_a_kind_that_never_ran_has_no_bound() -> None:
    cost = table()
    cost.observe(decode_rows=2, elapsed_ns=1_000)
    assert cost.step_bound_ns(2, 100) == 0


def test_a_chunk_pays_the_mean_of_what_it_adds_and_what_it_takes_alone() -> None:
    table = CostTable(slots=8, chunk_tokens=128)
    for _ in range(4):
        table.observe(decode_rows=8, elapsed_ns=4_000)
        table.observe(decode_rows=0, prefill_tokens=128, elapsed_ns=8_000)
        table.observe(decode_rows=8, prefill_tokens=128, elapsed_ns=10_000)
    assert table.chunk_share(8, 128) == pytest.approx((6_000 + 8_000) / 2 / 10_000)


def test_a_chunk_alone_pays_for_all_and_none_for_nothing() -> None:
    table = CostTable(slots=8, chunk_tokens=128)
    assert table.chunk_share(0, 128) == 1.0
    assert table.chunk_share(8, 0) == 0.0


def test_before_it_was_measured_a_chunk_pays_by_its_tokens() -> None:
    assert CostTable(slots=8, chunk_tokens=128).chunk_share(32, 96) == pytest.approx(0.75)


def test_a_chunks_share_stays_a_share_whatever_was_measured() -> None:
    table = CostTable(slots=8, chunk_tokens=128)
    table.observe(decode_rows=8, elapsed_ns=90_000)
    table.observe(decode_rows=0, prefill_tokens=128, elapsed_ns=1_000)
    table.observe(decode_rows=8, prefill_tokens=128, elapsed_ns=10_000)
    assert table.chunk_share(8, 128) == 0.0


def test_a_step_beside_another_engine_waits_for_one_turn_of_it() -> None:
    own, other = CostTable(slots=4, chunk_tokens=16), CostTable(slots=4, chunk_tokens=16)
    for table, step_ns in ((own, 1000), (other, 3000)):
        for _ in range(70):
            table.observe(decode_rows=4, elapsed_ns=step_ns)
            table.observe(decode_rows=3, prefill_tokens=16, elapsed_ns=2 * step_ns)
    alone, turn = own.prices(), other.as_turns()
    own.beside = other.as_turns
    together = own.prices()
    assert together.step_ns == alone.step_ns + turn.step_ns
    assert together.stall_ns == alone.stall_ns + turn.stall_ns
    assert turn.step_ns >= other.prices().step_ns + other.prices().chunk_ns[-1]
    assert own.prices() is together  # as long as nothing is observed
    own.beside = None
    assert own.prices() is alone


# A start on a busy machine


def started(slower: int) -> CostTable:
    """A table as a start leaves it: full steps, measured once or twice, each ``slower`` times what the engine takes."""
    cost = CostTable(slots=16, chunk_tokens=128)
    for _ in range(2):
        cost.observe(decode_rows=16, elapsed_ns=slower * truth(16, 0))
    cost.observe(decode_rows=15, prefill_tokens=128, elapsed_ns=slower * truth(15, 128))
    cost.observe(decode_rows=15, prefill_tokens=32, elapsed_ns=slower * truth(15, 128))
    return cost


def truth(rows: int, tokens: int) -> int:
    """What a step takes: weights are read once, and each row adds to that."""
    return 2_000 + 600 * rows + 450 * tokens


def serve(cost: CostTable, rows: int, requests: int, tokens: int = 100) -> None:
    for _ in range(requests):
        cost.observe(decode_rows=rows - 1, prefill_tokens=tokens, elapsed_ns=truth(rows - 1, tokens))
        for _ in range(20):
            cost.observe(decode_rows=rows, elapsed_ns=truth(rows, 0))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_prices_of_a_start_on_a_busy_machine_come_down_though_the_engine_is_never_full(rows: int) -> None:
    cost = started(slower=50)
    serve(cost, 1, 10)  # whose prompts run alone
    serve(cost, rows, 10)
    assert truth(16, 0) <= cost.typical_ns() <= 4 * truth(16, 0)
    assert truth(15, 128) <= cost.mixed_bound_ns() <= 4 * truth(15, 128)
    assert cost.prices().stall_ns <= 4 * truth(15, 128)


def test_the_first_full_step_since_takes_the_place_of_what_the_start_measured() -> None:
    cost = started(slower=50)
    serve(cost, 1, 10)
    for _ in range(3):
        cost.observe(decode_rows=16, elapsed_ns=truth(16, 0))
    assert cost.typical_ns() == truth(16, 0)
    assert cost.decode_bound_ns() < 2 * truth(16, 0)


@given(st.lists(st.tuples(st.integers(1, 15), st.integers(1, 128)), max_size=40))
def test_what_a_quiet_start_measured_stays_whatever_is_served_since(traffic: list[tuple[int, int]]) -> None:
    cost = started(slower=1)
    before = cost.typical_ns(), cost.decode_bound_ns(), cost.mixed_bound_ns()
    for rows, tokens in traffic:
        serve(cost, rows, 1, tokens)
    assert cost.typical_ns() >= before[0]
    assert cost.decode_bound_ns() >= before[1]
    assert cost.mixed_bound_ns() >= before[2]
