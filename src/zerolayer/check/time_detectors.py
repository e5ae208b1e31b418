"""Conclusions from times and promises: tick, stall, second mode, buffer, slot leak, refusals. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from zerolayer.check import modes as shape
from zerolayer.check.figures import BOOTSTRAP_SEED, DRAWS, is_stream, lag, retry, stream, unloaded
from zerolayer.check.findings import Finding, Kind
from zerolayer.check.phase import tick as find_tick
from zerolayer.check.run_file import ABORT, AFTER, BASELINE, CLOSED, PULSE, REPLAY, SHADOW, STAGE, STEP, Run
from zerolayer.check.statistics import (
    CONFIDENCE,
    Estimate,
    Floats,
    bootstrap,
    bootstrap_draws,
    interval,
    median,
    median_of,
    pooled_tau,
    share,
)

STALL_RATIO = 3.0  # P99 over P50
STALL_FANO = 2.0
PROMISE_SHARE = 0.99  # of retries at the promised time that an honest service serves
LUMP = 2.0  # tokens per read
MIN_EVENT_MS = 0.2  # a stream faster than this is read in lumps by anybody
LATE_MS = 500.0
# Of a step whose latency grows: fewest requests, share served, tau and its score, and the least that counts in ms.
GROWING_LEAST, GROWING_SERVED, GROWING_TAU, GROWING_Z, FLOOR_MS = 16, 0.98, 0.5, 4.0, 2.0


def tick(run: Run) -> Finding | None:
    """Replies to lone requests come on the beat of a clock."""
    rows = np.flatnonzero(run.rows(BASELINE) & run.served & (run.first >= 0))
    until = run.first if is_stream(run) else run.end
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    found = find_tick(run.sent[rows] / 1000, until[rows] / 1000, rng)
    if found is None:
        return None
    return Finding(
        Kind.TICK,
        f"Replies come on a beat of {found.period_ms:.3g} ms: work waits for a fixed tick, half of it on average.",
        {
            "period_ms": Estimate(found.period_ms, *found.between_ms, len(rows)),
            "chance": Estimate(found.chance, math.nan, math.nan, len(rows)),
        },
    )


def stall(run: Run) -> Finding | None:
    """Everything stands still for a while: few slow requests, close together in time, at a load that is no strain."""
    steps = run.rows(STEP, REPLAY) & run.served
    if not steps.any():
        return None
    calm = run.group[steps & (run.size == run.size[steps].min())].min()
    rows = np.flatnonzero(steps & (run.group == calm))
    latency, sent = run.latency_ms[rows], run.sent[rows] / 1000
    p50, p99 = float(np.median(latency)), float(np.quantile(latency, 0.99))
    slow = latency > max(2.5 * p50, p50 + 10.0)
    if p99 <= STALL_RATIO * p50 or slow.sum() < 5 or slow.mean() > 0.4:
        return None
    window = max(2 * p50, float(sent[-1] - sent[0]) / 200)
    counts = np.bincount(
        ((sent[slow] - sent[0]) / window).astype(np.int64), minlength=int((sent[-1] - sent[0]) / window)
    )
    fano = bootstrap([np.array([float(count)]) for count in counts], _fano, np.random.default_rng(BOOTSTRAP_SEED))
    if fano.value <= STALL_FANO:
        return None
    clusters = np.split(np.flatnonzero(slow), np.flatnonzero(np.diff(sent[slow]) > 2 * window) + 1)
    if len(clusters) < 2:  # once is no habit
        return None
    lengths = np.array([float(latency[each].max()) - p50 for each in clusters])
    starts = np.array([float(sent[each[0]]) for each in clusters])
    period = _period(starts)
    every = f", about every {period.value:.0f} ms" if period is not None else ""
    return Finding(
        Kind.STALL,
        f"The service stands still for about {float(np.median(lengths)):.0f} ms{every}: "
        f"{int(slow.sum())} slow requests in {len(clusters)} clusters.",
        {
            "length_ms": median(lengths),
            "fano": fano,
            "slow_share": share(int(slow.sum()), len(rows)),
        }
        | ({"period_ms": period} if period is not None else {}),
    )


def _fano(counts: Floats) -> Floats:
    """Variance over mean of slow requests in windows of time: 1 where they come by chance."""
    mean = counts.mean(axis=-1)
    return np.asarray(counts.var(axis=-1) / np.maximum(mean, 1e-9), dtype=np.float64)


def overload(run: Run) -> Finding | None:
    """A step in which latency grows from the first request to the last, and hardly anybody is refused.

    So shows a line that is longer than the largest pulse: a burst that passes, slots that are more than a pulse has.
    """
    steps = run.rows(STEP)
    if not steps.any():
        return None
    most = run.group[steps & (run.size == run.size[steps].max())].max()
    rows = np.flatnonzero(steps & (run.group == most))
    served, s0 = rows[run.served[rows]], unloaded(run)
    if len(served) < GROWING_LEAST or len(served) < GROWING_SERVED * len(rows) or math.isnan(s0.value):
        return None
    waits = run.sent_latency_ms[served[np.argsort(run.sent[served])]]
    grown = _growth(waits)
    if grown.value < max(s0.value, FLOOR_MS, lag(run).worst_ms):
        return None
    tau, z = pooled_tau([waits])
    if tau <= GROWING_TAU or z <= GROWING_Z:
        return None
    seconds = float(run.sent[served].max() - run.sent[served].min()) / 1e6
    return Finding(
        Kind.QUEUE,
        f"A line that no pulse was large enough to show: at {len(rows) / max(seconds, 1e-6):.3g} requests/s nothing is "
        f"refused, and within {seconds:.1f} s latency grew by {grown.value:.0f} ms.",
        {"grown_ms": grown, "tau": Estimate(tau, *_tau_bounds(tau, len(waits)), len(waits))},
    )


def _growth(waits: Floats) -> Estimate:
    """What the last quarter waits longer than the first, in ms."""
    quarter, rng = len(waits) // 4, np.random.default_rng(BOOTSTRAP_SEED)
    parts = [[np.array([wait]) for wait in part] for part in (waits[-quarter:], waits[:quarter])]
    last, first = (bootstrap_draws(part, median_of, rng, DRAWS) for part in parts)
    return interval(float(np.median(waits[-quarter:]) - np.median(waits[:quarter])), last - first, len(waits))


def _tau_bounds(tau: float, n: int) -> tuple[float, float]:
    """Of one row of n values, by Kendall's upper bound of tau's variance, 2 (1 - tau^2) / n."""
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(2 * (1 - tau * tau) / n)
    return tau - reach, min(1.0, tau + reach)


def _period(starts: Floats) -> Estimate | None:
    """From one stall to the next in ms, where they come regularly."""
    gaps = np.diff(starts)
    if len(gaps) < 2 or gaps.std() > 0.25 * gaps.mean():
        return None
    return median(gaps)


def second_mode(run: Run) -> Finding | None:
    """Lone requests take one of several times: a cache, a second machine, a retry inside."""
    latency = run.latency_ms[run.rows(BASELINE) & run.served]
    found = shape.modes(latency)
    if len(found) < 2:
        return None
    gap = shape.plateau(latency)
    between = f" Nothing lies between {gap.start:.0f} and {gap.end:.0f} ms." if gap else ""
    parts = ", ".join(f"{mode.share:.0%} at {mode.at:.0f} ms" for mode in found)
    return Finding(
        Kind.MODE,
        f"Lone requests have {len(found)} modes: {parts}.{between}",
        {f"mode_{i}_share": share(round(mode.share * len(latency)), len(latency)) for i, mode in enumerate(found, 1)},
    )


def buffer(run: Run) -> Finding | None:
    """A stream's tokens arrive in lumps: something on the way holds them back."""
    seen = stream(run)
    if seen is None or seen.event_ms < MIN_EVENT_MS or not seen.events_per_read.value >= LUMP:
        return None
    return Finding(
        Kind.BUFFER,
        f"Tokens come in lumps of {seen.events_per_read.value:.3g} a read; the first after {seen.first.value:.0f} ms.",
        {"events_per_read": seen.events_per_read, "small_gaps": seen.small_gaps, "first_ms": seen.first},
    )


@dataclass(frozen=True)
class _Aborts:
    """Figures of the requests sent right after half of a group had been broken off."""

    refused: int
    n: int
    extra_ms: Floats
    lost: float


def leak(run: Run) -> Finding | None:
    """A request that its client left keeps its slot."""
    seen, s0 = _after_aborts(run), unloaded(run).value
    if seen is None or seen.n < 4:
        return None
    extra = median(seen.extra_ms)
    refused = share(seen.refused, seen.n)
    held = refused.value > 0.5 or (extra.n > 0 and extra.value > max(0.3 * s0, 5.0))
    if not held and seen.lost < 0.5:
        return None
    ending = " Some slots never came back." if seen.lost >= 0.5 else ""
    others = f", the others began {extra.value:.0f} ms later than usual" if extra.n else ""
    return Finding(
        Kind.LEAK,
        f"Slots of clients that left stay taken: of {seen.n} requests right after, {seen.refused} were refused{others}."
        f"{ending}",
        {"refused": refused, "extra_wait_ms": extra},
    )


def _after_aborts(run: Run) -> _Aborts | None:
    after = run.rows(AFTER)
    if not after.any():
        return None
    whole = int(run.size[after].max())
    now, later = after & (run.size < whole), after & (run.size == whole)
    reference = run.first_ms[run.rows(PULSE) & (run.size == whole) & run.served]
    if not len(reference):
        return None
    extra = run.first_ms[now & run.served] - float(np.nanmedian(reference))
    rounds = max(1, len(np.unique(run.group[later])))
    before = run.rows(ABORT) & run.refused  # whoever was turned away before anything was broken off
    lost = float((later & ~run.served).sum() - before.sum()) / rounds
    return _Aborts(int((now & run.refused).sum()), int(now.sum()), extra[~np.isnan(extra)], lost)


def promise(run: Run) -> list[Finding]:
    """Refusals: whether they say when to come back, and whether that is true."""
    seen = retry(run)
    findings: list[Finding] = []
    if seen.kept.n >= 5 and seen.kept.high < PROMISE_SHARE:
        findings.append(
            Finding(
                Kind.DISHONEST,
                f"Of {seen.kept.n} retries at the promised time, {round(seen.kept.value * seen.kept.n)} were served.",
                {"kept": seen.kept, "promised_ms": seen.promised},
            )
        )
    refusals = run.rows(PULSE) & run.refused
    mute = int((refusals & (run.promised_ms < 0)).sum())
    if mute:
        findings.append(
            Finding(
                Kind.NO_PROMISE,
                f"{mute} of {int(refusals.sum())} refusals do not say when to come back.",
                {"without": share(mute, int(refusals.sum()))},
            )
        )
    if seen.regret.n and seen.regret.value > max(LATE_MS, 0.5 * seen.promised.value):
        findings.append(
            Finding(
                Kind.LATE_PROMISE,
                f"Refusals promise {seen.promised.value:.0f} ms; a slot was free {seen.regret.value:.0f} ms sooner.",
                {"regret_ms": seen.regret, "promised_ms": seen.promised},
            )
        )
    return findings


def failures(run: Run) -> Finding | None:
    """Requests that were neither served nor refused. They are in no latency and no rate of served requests."""
    rows = run.rows(BASELINE, PULSE, STEP, REPLAY, STAGE, CLOSED, SHADOW)
    failed = rows & ~run.served & ~run.refused
    if not failed.any():
        return None
    codes = sorted({int(code) for code in run.status[failed]})
    named = ", ".join("no whole reply" if code in (0, 200) else f"status {code}" for code in codes)
    return Finding(
        Kind.FAILURES,
        f"{int(failed.sum())} of {int(rows.sum())} requests failed ({named}); they count in no latency.",
        {"failed": share(int(failed.sum()), int(rows.sum()))},
    )
