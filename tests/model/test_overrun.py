"""How much longer than usual the longest steps take."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.model._native import Overrun


def _misses(ratios: list[float], known: int = 0) -> int:
    """How many were longer than was known before them, but for the first ``known``."""
    overrun, misses = Overrun(), 0
    for place, ratio in enumerate(ratios):
        misses += place >= known and ratio > overrun.ratio
        overrun.add(ratio)
    return misses


def test_about_one_step_in_three_thousand_passes_it_however_rare_moments_are_spread():
    draw = random.Random(1)
    steps = [draw.gauss(1.0, 0.03) + (draw.random() < 0.005) * draw.expovariate(1) for _ in range(100_000)]
    assert _misses(steps, known=8_192) < 50
    assert _misses(steps[:8_192]) < 25


def test_what_was_once_and_is_over_is_forgotten():
    overrun = Overrun()
    for _ in range(50):
        overrun.add(9.0)
    for _ in range(3 * 4096):
        overrun.add(1.0)
    assert overrun.ratio == 1.0


def test_one_freak_is_no_rule_once_there_is_experience():
    overrun = Overrun()
    for step in range(6_000):
        overrun.add(20.0 if step == 5_000 else 1.1)
    assert overrun.ratio == 1.1


@given(st.lists(st.floats(0.5, 30.0), max_size=200))
def test_it_is_never_below_what_is_usual_nor_above_the_longest(ratios):
    overrun = Overrun()
    for ratio in ratios:
        overrun.add(ratio)
    assert 1.0 <= overrun.ratio <= max([1.0, *ratios])
