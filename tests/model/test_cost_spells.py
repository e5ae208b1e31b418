"""The cost table of a machine that changes its speed: promises hold, and a slow spell leaves nothing behind."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zerolayer.model.cost import CostTable, Prices

SLOTS, CHUNK = 16, 128
US = 1_000


class Machine:
    """Steps that get dearer with each row, and with a chunk; all of them ``slowness`` times as long, and some noise."""

    def __init__(self, seed: int = 1) -> None:
        self.table = CostTable(slots=SLOTS, chunk_tokens=CHUNK)
        self.slowness = 1.0
        self.random = random.Random(seed)
        for rows in (SLOTS, *range(1, SLOTS + 1)):
            for _ in range(3):
                self.step(rows)
        for _ in range(3):
            self.step(SLOTS - 1, CHUNK)

    def step(self, rows: int, tokens: int = 0) -> int:
        took = (3_600 + 1_060 * max(0, rows - 1)) * (rows > 0) + 62_000 * tokens // CHUNK
        elapsed = int(took * US * self.slowness * self.random.uniform(0.95, 1.05))
        self.table.observe(decode_rows=rows, prefill_tokens=tokens, elapsed_ns=elapsed)
        return elapsed

    def run(self, steps: int, *rows: int) -> None:
        """``rows``: of which there are so many in turn; with none a full engine that now and then reads a prompt."""
        for at in range(steps):
            if rows:
                self.step(rows[at % len(rows)])
            else:
                self.step(SLOTS - (at % 5 == 0), CHUNK if at % 5 == 0 else 0)


def _request_ns(prices: Prices) -> int:
    """What is promised for 64 tokens."""
    return 66 * prices.step_ns + prices.chunk(CHUNK) + prices.reserve_ns


@pytest.mark.parametrize("slowness", [1.5, 3.0, 8.0])
@pytest.mark.parametrize("steps", [20, 60, 900])
@pytest.mark.parametrize("rows", [(1,), (3,), (1, 2)])
def test_after_a_slow_spell_a_few_small_steps_make_full_ones_as_cheap_as_before(
    slowness: float, steps: int, rows: tuple[int, ...]
) -> None:
    machine = Machine()
    machine.run(200)
    before = machine.table.prices()
    machine.slowness = slowness
    machine.run(steps)
    machine.slowness = 1.0
    machine.run(140, *rows)
    after = machine.table.prices()
    assert after.step_ns <= before.step_ns * 1.05 * (1 + 5 * (slowness - 1) / 256)  # five steps came unforeseen
    assert after.stall_ns <= 1.1 * before.stall_ns


def test_a_spell_that_began_while_a_kind_of_step_was_new_is_no_price_of_that_kind() -> None:
    table = CostTable(slots=SLOTS, chunk_tokens=CHUNK)
    for _ in range(40):
        table.observe(decode_rows=SLOTS, elapsed_ns=20_000 * US)
    for _ in range(60):
        table.observe(decode_rows=SLOTS, elapsed_ns=60_000 * US)
    for _ in range(60):
        table.observe(decode_rows=4, elapsed_ns=20_000 * US)
    assert table.usual_ns()["decode"] == pytest.approx(60_000 * US)  # nothing says that it is over
    for _ in range(40):
        table.observe(decode_rows=SLOTS, elapsed_ns=20_000 * US)
    assert table.step_bound_ns(4, 0) <= 1.1 * 20_000 * US


def test_an_engine_without_work_is_not_refused_for_a_spell_that_nobody_can_see_the_end_of() -> None:
    machine = Machine()
    machine.run(200)
    before = _request_ns(machine.table.prices())
    machine.slowness = 3.0
    machine.run(60)
    assert _request_ns(machine.table.prices()) > 2.5 * before
    machine.table.rest()
    assert _request_ns(machine.table.prices()) < 1.1 * before


def test_nothing_is_held_in_reserve_for_another_spell() -> None:
    machine = Machine()
    machine.run(200)
    before = machine.table.prices().reserve_ns
    machine.slowness = 8.0
    machine.run(200)
    machine.slowness = 1.0
    machine.run(200)
    assert machine.table.prices().reserve_ns < before + 20_000 * US  # a full step of the 200, for its noise


def test_a_single_step_that_takes_long_is_held_in_reserve_until_an_engine_without_work_forgets_it() -> None:
    machine = Machine()
    machine.run(200)
    before = machine.table.prices().reserve_ns
    machine.slowness = 50.0
    machine.step(SLOTS)
    machine.slowness = 1.0
    machine.run(200)
    kept = machine.table.prices().reserve_ns
    assert kept > 45 * 19_500 * US
    for _ in range(60):
        machine.table.rest()
    assert machine.table.prices().reserve_ns < max(2 * before, kept // 10)


def test_a_machine_that_is_slow_for_good_is_known_to_be_after_a_rest_too() -> None:
    machine = Machine()
    machine.run(200)
    before = machine.table.prices().step_ns
    machine.slowness = 2.0
    machine.run(1200, 1, 2)
    machine.table.rest()
    assert machine.table.prices().step_ns > 1.8 * before


def test_outliers_do_not_make_other_steps_dear() -> None:
    machine = Machine()
    machine.run(200)
    before = machine.table.prices().step_ns
    for _ in range(20):
        machine.slowness = 20.0
        machine.run(1)
        machine.slowness = 1.0
        machine.run(30)
    assert machine.table.prices().step_ns < 2 * before  # the mean has it, and no more than the mean


PHASES = st.lists(st.tuples(st.sampled_from([1.0, 1.5, 2.2, 3.2, 5.0]), st.integers(10, 120)), min_size=2, max_size=8)


@settings(max_examples=25, deadline=None)
@given(PHASES, st.integers(0, 1000))
def test_what_is_promised_for_any_number_of_steps_holds_until_the_machine_gets_slower_still(phases, seed) -> None:
    """Five slow steps tell a slow machine from some outliers, a few more how slow; what is promised then is kept."""
    machine = Machine(seed)
    machine.run(200)
    broken, open_promises = [], []  # of each promise: its step and chunk, and what is left of it
    for (was, _), (slowness, steps) in pairwise([(1.0, 0), *phases]):
        machine.slowness = slowness
        if slowness > was:
            open_promises = []
        for at in range(steps):
            chunk = machine.random.random() < 0.2
            elapsed = machine.step(SLOTS - chunk, CHUNK if chunk else 0)
            for promise in open_promises:
                promise[2] += promise[0] + chunk * promise[1] - elapsed
                if promise[2] < 0:
                    broken.append((slowness, at))
            if slowness <= was or at >= 8:
                prices = machine.table.prices()
                open_promises.append([prices.step_ns, prices.chunk_ns[-1], prices.reserve_ns])
    assert broken == []


@settings(max_examples=20, deadline=None)
@given(st.floats(1.3, 4.0), st.integers(3, 12), st.integers(3, 12), st.integers(0, 1000))
@example(4.0, 4, 8, 625)  # 3.2 percent
def test_on_a_machine_that_is_slow_by_turns_promises_hold_by_the_mean(slowness, slow, quick, seed) -> None:
    """Whoever shares a machine with a job that comes and goes: 100 steps take four percent more at most."""
    machine = Machine(seed)
    machine.run(100)
    told: list[tuple[Prices, int]] = []  # prices, and the time that had gone by
    now = 0
    while len(told) < 600:
        for machine.slowness, length in ((slowness, slow), (1.0, quick)):
            for _ in range(length):
                now += machine.step(SLOTS)
                told.append((machine.table.prices(), now))
    longer = [
        (until - since) / (100 * prices.step_ns + prices.reserve_ns)
        for (prices, since), (_, until) in zip(told[300:], told[400:], strict=False)
    ]
    assert max(longer) <= 1.04
