"""The machine's pace: quick to rise, a little slower to fall, deaf to single steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.model._native import Pace

NOISE = st.lists(st.floats(0.9, 1.1), min_size=30, max_size=60)


def paced(*votes: float) -> Pace:
    pace = Pace()
    for vote in votes:
        pace.vote(vote)
    return pace


def test_it_is_that_of_a_normal_machine_before_anybody_has_voted() -> None:
    assert Pace().now == 1.0


def test_it_rises_with_the_fifth_slow_step_and_not_before() -> None:
    assert [paced(*[1.0] * 20, *[3.0] * slow).now for slow in (4, 5)] == [1.0, 3.0]


def test_it_falls_with_the_thirteenth_quick_step_and_not_before() -> None:
    assert [paced(*[3.0] * 20, *[1.0] * quick).now for quick in (12, 13)] == [3.0, 1.0]


@given(NOISE)
def test_noise_is_no_change(noise: list[float]) -> None:
    assert paced(*noise).now == 1.0


@given(NOISE, st.floats(1.5, 30.0), st.integers(1, 4))
def test_single_steps_that_take_long_are_no_change(noise: list[float], long: float, count: int) -> None:
    assert paced(*noise, *[long] * count, *noise).now == 1.0


@given(NOISE, st.floats(1.5, 20.0))
def test_of_a_slow_machine_it_is_no_less_than_most_steps_took(noise: list[float], slow: float) -> None:
    votes = [each * slow for each in noise]
    assert paced(*noise, *votes).now >= sorted(votes[-17:])[8]


def test_the_first_step_of_a_spell_belongs_to_it_and_the_last_one_before_does_not() -> None:
    pace = paced(*[1.0] * 9, *[3.0] * 4)  # four votes are behind the last quick one
    assert pace.then() == 1.0
    pace.vote(3.0)
    assert pace.then() == 3.0


def test_the_last_step_of_a_spell_belongs_to_it_and_the_next_one_does_not() -> None:
    pace = paced(*[3.0] * 9, *[1.0] * 4)
    assert pace.then() == 3.0
    pace.vote(1.0)
    assert pace.then() == 1.0


def test_the_mean_has_single_steps_and_forgets_them() -> None:
    pace = paced(*[1.0] * 200, 17.0)
    assert pace.mean == pytest.approx(1 + 16 / 128)
    for _ in range(128):
        pace.vote(1.0)
    assert pace.mean == pytest.approx(1.0)


def test_what_lasts_is_what_the_machine_is_used_to() -> None:
    pace = paced(*[1.0] * 20, *[2.0] * 1100)
    pace.rest()
    assert pace.now == 2.0


def test_a_spell_is_not() -> None:
    pace = paced(*[1.0] * 20, *[2.0] * 500)
    pace.rest()
    assert pace.now == 1.0


def test_a_machine_that_was_slow_for_long_and_is_quick_again_is_so_at_once() -> None:
    assert paced(*[2.0] * 1100, *[1.0] * 17).now == 1.0


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.9])
def test_a_machine_is_never_taken_to_be_quicker_than_its_steps_were(ratio: float) -> None:
    assert paced(*[ratio] * 2000).now == 1.0
