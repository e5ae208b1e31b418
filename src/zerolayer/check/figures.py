"""What a run measured, before anything is concluded: pure functions from ``Run`` to estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerolayer.check.run_file import BASELINE, CLOSED, PULSE, REPLAY, RETRY, SHADOW, STAGE, STEP, Run
from zerolayer.check.statistics import (
    NOTHING,
    Estimate,
    Floats,
    bootstrap,
    bootstrap_draws,
    kendall_tau,
    median,
    median_of,
    pooled_tau,
    quantile,
    rate,
    share,
    spread,
    tau_estimate,
    theil_sen,
)

BOOTSTRAP_SEED = 20
DRAWS = 400
MIN_ACCEPTED = 4  # in a pulse whose order is looked at
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Lag:
    """The client's own lateness in ms, each the 99th percentile, and the most that still allows a verdict."""

    timer: Estimate
    send: Estimate
    read: Estimate
    limit_ms: float

    @property
    def worst_ms(self) -> float:
        return max(_or_zero(each.value) for each in (self.timer, self.send, self.read))

    @property
    def valid(self) -> bool:
        return self.worst_ms <= self.limit_ms


@dataclass(frozen=True)
class Level:
    """One load level: pulses of ``size`` requests, or a step of ``size`` requests per second."""

    size: int
    p50: Estimate
    p99: Estimate
    first_p50: Estimate
    refused: Estimate
    failed: int
    achieved: Estimate  # requests sent per second; NOTHING for pulses


@dataclass(frozen=True)
class Order:
    """How latency goes with the order of sending inside the largest pulses, counted from the real send.

    ``tau`` pools the pairs of all pulses and ``z`` is its score; ``ordered`` is the share of pulses with tau > 0.5;
    ``slope`` in ms per position; ``effect`` is what the last quarter of a pulse waits longer than the first, in ms.
    Where the last come are first served, tau is negative, and slope and effect are those of the reversed order.
    """

    pulses: int
    tau: Estimate
    z: float
    ordered: Estimate
    slope: Estimate
    effect: Estimate


@dataclass(frozen=True)
class Ratios:
    """Of the largest pulses: P50 and P99 in times of S0, and P99 in times of P50. Bootstrapped over pulses."""

    p50: Estimate
    p99: Estimate
    tail: Estimate


@dataclass(frozen=True)
class Stream:
    """How streams arrive, from lone requests only."""

    events_per_read: Estimate
    small_gaps: Estimate
    first: Estimate
    gap: Estimate
    event_ms: float  # median of duration over events


@dataclass(frozen=True)
class Retry:
    """What became of refusals. ``regret`` is promised minus earliest success, in ms: above 0, the promise was late."""

    refused: Estimate
    promised: Estimate
    kept: Estimate
    regret: Estimate


def lag(run: Run) -> Lag:
    """The client's own lateness over the whole run."""
    sent = run.sent >= 0
    limit = run.settings.max_lag_ms or max(1.0, 0.1 * _or_zero(unloaded(run).value))
    return Lag(_p99(run.timer_lag), _p99((run.sent - run.intended)[sent]), _p99(run.lag[run.served]), limit)


def _p99(microseconds: NDArray[np.int64]) -> Estimate:
    return quantile(microseconds / 1000, 0.99)


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def unloaded(run: Run) -> Estimate:
    """S0: the median latency of lone requests, in ms."""
    return median(_alone(run))


def unloaded_spread(run: Run) -> Estimate:
    """The median absolute deviation of lone requests' latency, in ms."""
    return bootstrap(_singly(_alone(run)), spread, np.random.default_rng(BOOTSTRAP_SEED))


def _alone(run: Run) -> Floats:
    return run.latency_ms[run.rows(BASELINE) & run.served]


def _singly(values: Floats) -> list[Floats]:
    return [np.array([value]) for value in values]


def ratios(run: Run) -> Ratios | None:
    """The largest pulses against lone requests; None without both."""
    rows = run.rows(PULSE)
    if not rows.any():
        return None
    largest = rows & (run.size == run.size[rows].max()) & run.served
    pulses = [run.latency_ms[largest & (run.group == group)] for group in np.unique(run.group[largest])]
    alone = _alone(run)
    if not pulses or not len(alone):
        return None
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    s0 = bootstrap_draws(_singly(alone), median_of, rng, DRAWS)
    # The same pulses are drawn for both, because the ratio of the two is asked for.
    p50 = bootstrap_draws(pulses, median_of, np.random.default_rng(BOOTSTRAP_SEED), DRAWS)
    p99 = bootstrap_draws(pulses, _p99_of, np.random.default_rng(BOOTSTRAP_SEED), DRAWS)
    seen = np.concatenate(pulses)
    bounded = not math.isnan(quantile(seen, 0.99).high)

    def ratio(draws: Floats, value: float, *, is_tail: bool) -> Estimate:
        low, high = (float(bound) for bound in np.quantile(draws, [0.025, 0.975]))
        return Estimate(value, low, high if bounded or not is_tail else math.nan, len(seen))

    middle, tail, lone = float(median_of(seen)), float(_p99_of(seen)), float(median_of(alone))
    return Ratios(
        ratio(p50 / s0, middle / lone, is_tail=False),
        ratio(p99 / s0, tail / lone, is_tail=True),
        ratio(p99 / p50, tail / middle, is_tail=True),
    )


def _p99_of(values: Floats) -> Floats:
    return np.asarray(np.quantile(values, 0.99, axis=-1), dtype=np.float64)


def levels(run: Run, phase: str) -> list[Level]:
    """One entry for each size of pulse or rate of step, ascending; steps of a slow service may round to the same."""
    rows = run.rows(phase)
    if phase == STEP:
        pairs = sorted({(int(size), int(group)) for size, group in zip(run.size[rows], run.group[rows], strict=True)})
        return [_level(run, rows & (run.group == group), size, phase) for size, group in pairs]
    return [_level(run, rows & (run.size == size), int(size), phase) for size in np.unique(run.size[rows])]


def _level(run: Run, rows: Mask, size: int, phase: str) -> Level:
    served = rows & run.served
    failed = rows & ~run.served & ~run.refused
    achieved = NOTHING
    if phase in (STEP, REPLAY, STAGE, CLOSED):
        span = float(run.sent[rows].max() - run.sent[rows].min()) / 1e6
        achieved = rate(int(rows.sum()) - 1, span)
    first = run.first_ms[served]
    return Level(
        size,
        median(run.latency_ms[served]),
        quantile(run.latency_ms[served], 0.99),
        median(first[~np.isnan(first)]),
        share(int((rows & run.refused).sum()), int(rows.sum())),
        int(failed.sum()),
        achieved,
    )


def is_stream(run: Run) -> bool:
    """Most replies came token by token."""
    served = run.served & ~run.rows(RETRY)
    return bool(served.any()) and float(np.median(run.events[served])) >= 2


def pulse_waits(run: Run, size: int | None = None, *, from_send: bool = True) -> list[Floats]:
    """For each pulse of ``size`` (default: the largest): latency in ms of those served, in the order of sending.

    Streams count to their first token, where a queue shows undisturbed; other replies to their end. From the real
    send, because writing a pulse takes this client some microseconds a request; or from the start of the run, where
    the pace of the service is asked for and not what each request saw.
    """
    rows = run.rows(PULSE)
    if not rows.any():
        return []
    wanted = rows & (run.size == (run.size[rows].max() if size is None else size)) & run.served
    until = run.first if is_stream(run) else run.end
    return [
        ((until - (run.sent if from_send else 0)) / 1000)[np.flatnonzero(wanted & (run.group == group))]
        for group in np.unique(run.group[wanted])
    ]


def order(run: Run) -> Order | None:
    """The order figures of the largest pulses; None without a pulse that has four served."""
    groups = [waits for waits in pulse_waits(run) if len(waits) >= MIN_ACCEPTED]
    if not groups:
        return None
    z = pooled_tau(groups)[1]
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    tau = tau_estimate(groups, np.random.default_rng(BOOTSTRAP_SEED))
    if tau.value < 0:
        groups = [waits[::-1] for waits in groups]
    taus = np.array([kendall_tau(waits) for waits in groups])
    slopes = [np.array([theil_sen(waits)]) for waits in groups]
    effects = [np.array([_effect(waits)]) for waits in groups]
    return Order(
        len(groups),
        tau,
        z,
        share(int((taus > 0.5).sum()), len(taus)),
        bootstrap(slopes, median_of, rng),
        bootstrap(effects, median_of, rng),
    )


def _effect(waits: Floats) -> float:
    quarter = max(1, len(waits) // 4)
    return float(np.median(waits[-quarter:]) - np.median(waits[:quarter]))


def capacity(run: Run) -> float:
    """Requests per second that the service completed at its best: served over duration, median of each pulse size."""
    rows = run.rows(PULSE) & run.served
    best = 0.0
    for size in np.unique(run.size[rows]):
        speeds = []
        for group in np.unique(run.group[rows & (run.size == size)]):
            mine = rows & (run.group == group)
            seconds = float(run.end[mine].max() - run.sent[mine].min()) / 1e6
            speeds.append(int(mine.sum()) / max(seconds, 1e-6))
        best = max(best, float(np.median(speeds)))
    return best


def stream(run: Run) -> Stream | None:
    """How lone streams of eight or more tokens arrive; None if there are none."""
    lone = np.flatnonzero(run.rows(BASELINE) & run.served & (run.events >= 8))
    per_read, small, gaps = [], [], []
    for row in lone:
        mine = run.read_request == row
        with_events = mine & (run.read_events > 0)
        times = run.read_time[with_events] / 1000
        per_read.append(float(run.read_events[with_events].sum()) / max(1, len(times)))
        between = token_gaps(times, run.read_events[with_events])
        small.append(float(np.mean(between < 0.3 * between.mean())) if len(between) and between.mean() > 0 else 0.0)
        gaps.append(float(np.median(between)) if len(between) else 0.0)
    if not per_read:
        return None
    duration = (run.end - run.sent)[lone] / 1000
    first = run.first_ms[lone]
    return Stream(
        median(np.array(per_read)),
        median(np.array(small)),
        median(first[~np.isnan(first)]),
        median(np.array(gaps)),
        float(np.median(duration / run.events[lone])),
    )


def token_gaps(read_ms: Floats, events: NDArray[np.int64]) -> Floats:
    """Times between tokens in ms: n tokens have n - 1 gaps, the wait for the first is none of them."""
    return np.diff(np.repeat(read_ms, events))


def retry(run: Run) -> Retry:
    """Refusals in pulses, and what became of retries at the promised time."""
    pulses = run.rows(PULSE)
    refused = pulses & run.refused
    again = run.rows(RETRY) & (run.position >= 0)
    promised = run.promised_ms[refused & (run.promised_ms >= 0)].astype(np.float64)
    regrets = [value for group in np.unique(run.group[run.rows(SHADOW)]) if (value := _regret(run, group)) is not None]
    return Retry(
        share(int(refused.sum()), int(pulses.sum())),
        median(promised),
        share(int((again & run.served).sum()), int(again.sum())),
        median(np.array(regrets)),
    )


def _regret(run: Run, group: int) -> float | None:
    """Promised minus earliest success after the refusals of one shadowed pulse."""
    mine = run.rows(SHADOW) & (run.group == group)
    pulse, probes = mine & (run.position < run.size), mine & (run.position >= run.size)
    promised = pulse & run.refused & (run.promised_ms >= 0)
    successes = run.sent[probes & run.served]
    if not promised.any() or not len(successes):
        return None
    earliest = (successes.min() - run.sent[promised].min()) / 1000
    return float(run.promised_ms[promised].min() - earliest)
