"""Order statistics, rank correlation and exact intervals: pure functions over arrays, numpy and the standard library.

Every estimate comes as an ``Estimate`` with the number of observations and its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval. ``low`` or ``high`` is NaN where the data cannot bound it."""

    value: float
    low: float
    high: float
    n: int


NOTHING = Estimate(math.nan, math.nan, math.nan, 0)


def quantile(values: Floats, q: float) -> Estimate:
    """The ``q`` quantile with the distribution-free interval of order statistics (David & Nagaraja, section 7.1).

    The bounds are order statistics whose ranks a binomial(n, q) count leaves out with 2.5 % each. Where n is too small
    for such a rank the bound is NaN: 100 values do not bound a P99 from above.
    """
    n = len(values)
    if n == 0:
        return NOTHING
    ordered = np.sort(values)
    low_rank, high_rank = _binomial_ranks(n, q)
    return Estimate(
        float(np.quantile(ordered, q)),
        float(ordered[low_rank - 1]) if low_rank >= 1 else math.nan,
        float(ordered[high_rank - 1]) if high_rank <= n else math.nan,
        n,
    )


def _binomial_ranks(n: int, q: float) -> tuple[int, int]:
    """1-based ranks (low, high); low may be 0 and high n + 1, which say that there is no such order statistic."""
    tail = (1 - CONFIDENCE) / 2
    reach = 12 * math.sqrt(n * q * (1 - q)) + 12  # beyond lies less than any sum can tell
    first = max(0, math.floor(n * q - reach))
    counts = np.arange(first, min(n, math.ceil(n * q + reach)) + 1)
    logs = (
        math.lgamma(n + 1)
        - np.array([math.lgamma(k + 1) + math.lgamma(n - k + 1) for k in counts.tolist()])
        + counts * math.log(q)
        + (n - counts) * math.log1p(-q)
    )
    cumulative = np.cumsum(np.exp(logs))
    low = first + int(np.searchsorted(cumulative, tail, side="right"))
    high = first + int(np.searchsorted(cumulative, 1 - tail, side="left")) + 1
    return low, high


def median(values: Floats) -> Estimate:
    """The 0.5 quantile."""
    return quantile(values, 0.5)


def spread(values: Floats) -> Floats:
    """Median absolute deviation from the median along the last axis, as ``bootstrap`` takes it."""
    middle = np.median(values, axis=-1, keepdims=True)
    return np.asarray(np.median(np.abs(values - middle), axis=-1), dtype=np.float64)


def kendall_sum(y: Floats) -> int:
    """Concordant minus discordant pairs of ``y`` against its own order; ties count for neither."""
    return int(np.sum(np.triu(np.sign(y[None, :] - y[:, None]), 1)))


def kendall_tau(y: Floats) -> float:
    """Kendall's tau-a of ``y`` against its order, in [-1, 1]; NaN of fewer than two values."""
    n = len(y)
    return kendall_sum(y) / (n * (n - 1) / 2) if n >= 2 else math.nan


def pooled_tau(groups: Sequence[Floats]) -> tuple[float, float]:
    """Tau over pairs within groups only, and its z score (Kendall's variance n(n-1)(2n+5)/18, summed over groups)."""
    sums = sum(kendall_sum(group) for group in groups)
    pairs = sum(len(group) * (len(group) - 1) / 2 for group in groups)
    variance = sum(len(group) * (len(group) - 1) * (2 * len(group) + 5) / 18 for group in groups)
    return (sums / pairs, sums / math.sqrt(variance)) if variance > 0 else (math.nan, 0.0)


def tau_estimate(groups: Sequence[Floats], rng: np.random.Generator, times: int = 400) -> Estimate:
    """The same tau with an interval: a percentile bootstrap over whole groups. ``n`` counts groups."""
    sums = np.array([kendall_sum(group) for group in groups], dtype=np.float64)
    pairs = np.array([len(group) * (len(group) - 1) / 2 for group in groups])
    if not pairs.sum():
        return NOTHING
    chosen = rng.integers(0, len(groups), (times, len(groups)))
    draws = sums[chosen].sum(axis=1) / np.maximum(pairs[chosen].sum(axis=1), 1)
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(sums.sum() / pairs.sum()), float(low), float(high), len(groups))


def theil_sen(y: Floats) -> float:
    """Median of all pairwise slopes of ``y`` against its index (Sen 1968); NaN of fewer than two values."""
    n = len(y)
    if n < 2:
        return math.nan
    first, second = np.triu_indices(n, 1)
    return float(np.median((y[second] - y[first]) / (second - first)))


def median_of(values: Floats) -> Floats:
    """The median along the last axis, as ``bootstrap`` takes it."""
    return np.asarray(np.median(values, axis=-1), dtype=np.float64)


Statistic = Callable[[Floats], Floats]


def bootstrap(units: Sequence[Floats], statistic: Statistic, rng: np.random.Generator, times: int = 400) -> Estimate:
    """Percentile bootstrap over whole ``units``: requests of one pulse depend on each other, so pulses are drawn.

    ``statistic`` reduces the last axis.
    """
    filled = [unit for unit in units if len(unit)]
    if not filled:
        return NOTHING
    pooled = np.concatenate(filled)
    draws = bootstrap_draws(filled, statistic, rng, times)
    low, high = np.nanquantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(statistic(pooled)), float(low), float(high), len(pooled))


def bootstrap_draws(units: Sequence[Floats], statistic: Statistic, rng: np.random.Generator, times: int) -> Floats:
    """``times`` values of ``statistic``, each of as many units drawn with replacement."""
    chosen = rng.integers(0, len(units), (times, len(units)))
    if len({len(unit) for unit in units}) == 1:  # equal units: one array instead of many
        drawn = np.stack(list(units))[chosen]
        return statistic(drawn.reshape(times, -1))
    return np.array([float(statistic(np.concatenate([units[i] for i in row]))) for row in chosen])


def interval(value: float, draws: Floats, n: int) -> Estimate:
    """An estimate with the percentile interval of its bootstrap ``draws``, which is never without the value."""
    low, high = np.nanquantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, min(value, float(low)), max(value, float(high)), n)


def share(successes: int, n: int) -> Estimate:
    """A proportion with its exact interval (Clopper and Pearson 1934)."""
    if n == 0:
        return NOTHING
    tail = (1 - CONFIDENCE) / 2
    if successes in (0, n):  # where the quantile has a closed form
        rest = tail ** (1 / n)
        return Estimate(0.0, 0.0, 1 - rest, n) if successes == 0 else Estimate(1.0, rest, 1.0, n)
    low = beta_quantile(tail, successes, n - successes + 1)
    high = beta_quantile(1 - tail, successes + 1, n - successes)
    return Estimate(successes / n, low, high, n)


def lower_bound(successes: int, n: int, confidence: float = CONFIDENCE) -> float:
    """The one-sided exact lower bound of a proportion; 29,956 of 29,956 bound it at 0.9999 with 95 %."""
    return 0.0 if successes == 0 else beta_quantile(1 - confidence, successes, n - successes + 1)


def rate(events: int, seconds: float) -> Estimate:
    """Events per second with the normal interval of the root of a Poisson count."""
    if seconds <= 0:
        return NOTHING
    z, root = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), math.sqrt(events)
    return Estimate(
        events / seconds, max(0.0, root - z / 2) ** 2 / seconds, (math.sqrt(events + 1) + z / 2) ** 2 / seconds, events
    )


def beta_quantile(p: float, a: float, b: float) -> float:
    """X with I_x(a, b) = p, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beta_cdf(middle, a, b) < p else (low, middle)
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by Lentz's continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    tiny, c, d = 1e-300, 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d, tiny)
            c = _away_from_zero(1 + term / c, tiny)
            fraction *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * fraction


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def gamma_tail(z: float, shape: int) -> float:
    """P(X > z) of a gamma variable of integer shape and scale 1: the Poisson sum of DLMF 8.4.10."""
    if z <= 0:
        return 1.0
    logs = [-z + j * math.log(z) - math.lgamma(j + 1) for j in range(shape)]
    return min(1.0, math.fsum(math.exp(value) for value in logs))
