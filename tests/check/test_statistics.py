"""The statistics, against definitions and published figures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.check import statistics as stats
from zerolayer.check.modes import modes, plateau
from zerolayer.check.phase import tick

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=25)


def test_29956_retries_without_a_failure_bound_the_success_at_four_nines() -> None:
    assert stats.lower_bound(29_956, 29_956) >= 0.9999 > stats.lower_bound(29_955, 29_955)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (95, 100, 0.8872, 0.9836)],
)
def test_a_share_has_the_interval_of_clopper_and_pearson(successes: int, n: int, low: float, high: float) -> None:
    seen = stats.share(successes, n)
    assert (seen.low, seen.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@given(st.integers(1, 40), st.data())
def test_the_beta_function_is_the_binomial_tail(n: int, data: st.DataObject) -> None:
    k, p = data.draw(st.integers(1, n)), data.draw(st.floats(0.01, 0.99))
    tail = math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert stats.beta_cdf(p, k, n - k + 1) == pytest.approx(tail, abs=1e-9)


def test_the_p99_of_1000_lies_between_the_p98_3_and_the_p99_6() -> None:
    seen = stats.quantile(np.arange(1000, dtype=float), 0.99)
    assert (seen.low / 10, seen.high / 10) == (pytest.approx(98.3, abs=0.15), pytest.approx(99.6, abs=0.15))


def test_100_values_do_not_bound_a_p99_from_above() -> None:
    assert math.isnan(stats.quantile(np.arange(100, dtype=float), 0.99).high)


def test_the_interval_of_a_median_holds_the_true_one_19_times_in_20() -> None:
    rng = np.random.default_rng(3)
    seen = [stats.median(rng.normal(size=40)) for _ in range(400)]
    assert 0.93 <= np.mean([each.low <= 0 <= each.high for each in seen]) <= 0.99


@given(NUMBERS)
def test_tau_counts_pairs(values: list[float]) -> None:
    pairs = list(itertools.combinations(values, 2))
    expected = sum((b > a) - (b < a) for a, b in pairs) / len(pairs)
    assert stats.kendall_tau(np.array(values)) == pytest.approx(expected)


@given(NUMBERS)
def test_the_slope_is_the_median_of_pairwise_slopes(values: list[float]) -> None:
    slopes = [(values[j] - values[i]) / (j - i) for i, j in itertools.combinations(range(len(values)), 2)]
    assert stats.theil_sen(np.array(values)) == pytest.approx(float(np.median(slopes)))


def test_pooled_tau_never_compares_two_pulses() -> None:
    rising = [np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3])]
    assert stats.pooled_tau(rising)[0] == 1.0


@given(st.lists(NUMBERS.map(np.array), min_size=1, max_size=6))
def test_the_interval_of_a_pooled_tau_is_drawn_from_whole_groups(groups: list[stats.Floats]) -> None:
    seen = stats.tau_estimate(groups, np.random.default_rng(1))
    taus = [stats.kendall_tau(group) for group in groups]
    assert seen.value == pytest.approx(stats.pooled_tau(groups)[0])
    assert min(taus) - 1e-9 <= seen.low <= seen.high <= max(taus) + 1e-9
    assert seen.n == len(groups)


@pytest.mark.parametrize("q", [0.5, 0.99])
def test_the_bounds_of_a_quantile_are_the_ranks_that_a_binomial_count_leaves_out(q: float) -> None:
    n = 500
    within = [math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)]
    seen = stats.quantile(np.arange(1, n + 1, dtype=float), q)
    assert math.fsum(within[: int(seen.low)]) <= 0.025 < math.fsum(within[: int(seen.low) + 1])
    assert math.fsum(within[: int(seen.high)]) >= 0.975 > math.fsum(within[: int(seen.high) - 1])


def test_the_gamma_tail_of_shape_1_is_exponential() -> None:
    assert stats.gamma_tail(3.0, 1) == pytest.approx(math.exp(-3))


def test_a_rate_has_the_interval_of_its_count() -> None:
    seen = stats.rate(100, 10.0)
    assert (seen.value, seen.low, seen.high) == (10.0, pytest.approx(8.1, abs=0.1), pytest.approx(12.1, abs=0.2))


def test_nothing_has_no_estimate() -> None:
    assert stats.median(np.array([])).n == 0
    assert stats.share(0, 0).n == 0
    assert stats.rate(3, 0.0).n == 0


def test_a_bootstrap_draws_pulses_and_not_requests() -> None:
    """Ten pulses, each with one value ten times: as uncertain as ten values, not as a hundred."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=10)
    pulses = stats.bootstrap([np.full(10, value) for value in values], stats.median_of, rng)
    singles = stats.bootstrap([np.array([value]) for value in values], stats.median_of, rng)
    assert pulses.high - pulses.low == pytest.approx(singles.high - singles.low, rel=0.2)


def test_two_modes_are_seen_with_their_shares() -> None:
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(50, 5, 180), rng.normal(200, 20, 20)])
    low, high = modes(values)
    assert (low.at, high.at) == (pytest.approx(50, rel=0.1), pytest.approx(200, rel=0.15))
    assert high.share == pytest.approx(0.1, abs=0.02)


def test_one_mode_is_one_whatever_its_tail() -> None:
    assert [len(modes(np.random.default_rng(seed).lognormal(4, 0.6, 200))) for seed in range(40)] == [1] * 40


def test_the_plateau_is_where_nothing_lies() -> None:
    values = np.concatenate([np.linspace(40, 60, 50), np.linspace(150, 170, 10)])
    seen = plateau(values)
    assert seen is not None
    assert (seen.start, seen.end) == (60, 150)


def test_a_beat_is_told_from_regular_probes() -> None:
    """Probes of one client keep some beat of their own; only a beat that ties the ends counts."""
    rng = np.random.default_rng(5)
    sent = np.cumsum(rng.normal(60, 12, 200))
    assert tick(sent, sent + rng.normal(50, 1, 200), rng) is None
    found = tick(sent, np.ceil((sent + 30) / 25) * 25 + rng.normal(20, 1, 200), rng)
    assert found is not None
    assert found.period_ms == pytest.approx(25, rel=0.02)
