"""Runs as they would look against a service of known behaviour, made without a clock: seeded arrays.

Times are ms here. Every service takes 50 ms with the given coefficient of variation where it is alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from zerolayer.check.run_file import BASELINE, PHASES, PULSE, RETRY, STEP, Run, Settings, TargetInfo

S0 = 50.0
Service = Callable[[np.random.Generator, np.ndarray], np.ndarray]  # arrivals in ms -> latencies, NaN = refused


def times(rng: np.random.Generator, n: int, cv: float = 0.15) -> np.ndarray:
    sigma = np.sqrt(np.log(1 + cv * cv))
    return rng.lognormal(np.log(S0) - sigma * sigma / 2, sigma, n)


def healthy(cv: float) -> Service:
    return lambda rng, arrivals: times(rng, len(arrivals), cv)


def refusing(slots: int = 8) -> Service:
    """Honest refusal: a request that finds no slot is turned away."""

    def serve(rng: np.random.Generator, arrivals: np.ndarray) -> np.ndarray:
        service, free = times(rng, len(arrivals)), [0.0] * slots
        latency = np.full(len(arrivals), np.nan)
        for i, at in enumerate(arrivals):
            slot = int(np.argmin(free))
            if free[slot] <= at:
                free[slot], latency[i] = at + service[i], service[i]
        return latency

    return serve


def fifo(slots: int = 8, cv: float = 0.15) -> Service:
    def serve(rng: np.random.Generator, arrivals: np.ndarray) -> np.ndarray:
        service, free, latency = times(rng, len(arrivals), cv), [0.0] * slots, np.empty(len(arrivals))
        for i, at in enumerate(arrivals):
            start = max(at, heapq.heappop(free))
            heapq.heappush(free, start + service[i])
            latency[i] = start + service[i] - at
        return latency

    return serve


def in_another_order(inner: Service, order: str) -> Service:
    """A queue that serves the last come first, or in no order: the same waits, dealt differently."""

    def serve(rng: np.random.Generator, arrivals: np.ndarray) -> np.ndarray:
        ends = inner(rng, arrivals) + arrivals
        return (ends[::-1] if order == "last" else rng.permutation(ends)) - arrivals

    return lambda rng, at: inner(rng, at) if len(at) == 1 or at[-1] - at[0] > 1.0 else serve(rng, at)


def shaper(per_s: float = 100.0, burst: int = 1) -> Service:
    """A leaky bucket that delays; ``burst`` pass at once."""

    def serve(rng: np.random.Generator, arrivals: np.ndarray) -> np.ndarray:
        service, gap, level, latency = times(rng, len(arrivals)), 1000 / per_s, -1e9, np.empty(len(arrivals))
        for i, at in enumerate(arrivals):
            level = max(at - burst * gap, level) + gap
            latency[i] = max(0.0, level - at) + service[i]
        return latency

    return serve


def sharing(slots: int = 8) -> Service:
    def serve(rng: np.random.Generator, arrivals: np.ndarray) -> np.ndarray:
        service, latency = times(rng, len(arrivals)), np.empty(len(arrivals))
        left: dict[int, float] = {}
        now, i = 0.0, 0
        while i < len(arrivals) or left:
            pace = min(1.0, slots / len(left)) if left else 1.0
            ends = now + min(left.values()) / pace if left else np.inf
            until = min(ends, arrivals[i] if i < len(arrivals) else np.inf)
            left = {each: rest - (until - now) * pace for each, rest in left.items()}
            now = until
            if i < len(arrivals) and arrivals[i] <= ends:
                left[i] = service[i]
                i += 1
            for each in [each for each, rest in left.items() if rest <= 1e-9]:
                latency[each] = now - arrivals[each]
                del left[each]
        return latency

    return serve


def tick(period: float, cv: float = 0.02) -> Service:
    return lambda rng, at: np.ceil(at / period) * period + times(rng, len(at), cv) - at


def stall(period: float = 2000.0, length: float = 300.0) -> Service:
    def serve(rng: np.random.Generator, arrivals: np.ndarray) -> np.ndarray:
        done = arrivals + times(rng, len(arrivals))
        began = np.floor(done / period) * period
        hit = done - began < length
        return np.where(hit, began + length, done) - arrivals

    return serve


def company(batch: int = 8, wait: float = 20.0) -> Service:
    """Waits for a full batch, or 20 ms."""

    def serve(rng: np.random.Generator, arrivals: np.ndarray) -> np.ndarray:
        service, start, i = times(rng, len(arrivals)), np.empty(len(arrivals)), 0
        while i < len(arrivals):
            end = i + int(np.searchsorted(arrivals[i : i + batch], arrivals[i] + wait, side="right"))
            full = end - i == batch
            start[i:end] = arrivals[end - 1] if full else arrivals[i] + wait
            i = end
        return start + service - arrivals

    return serve


def two_modes(share: float = 0.05, times_slower: float = 4.0) -> Service:
    return lambda rng, at: times(rng, len(at)) * np.where(rng.random(len(at)) < share, times_slower, 1.0)


def run(
    service: Service,
    seed: int = 1,
    *,
    probes: int = 200,
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 40),
    repeats: int = 10,
    rate: float = 60.0,
    step_s: float = 10.0,
    retries: tuple[int, int] | None = None,
    lag_ms: float = 0.05,
) -> Run:
    """Lone probes, pulses, one step; ``retries`` = (tried, served) at the promised time."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, int, int, int, float, float]] = []
    at = 0.0
    for number in range(probes):
        wait = float(service(rng, np.array([at]))[0])
        rows.append((BASELINE, 0, 1, number, at, wait))
        at += (0.0 if np.isnan(wait) else wait) + rng.exponential(25.0)
    group = 0
    for _ in range(repeats):
        for size in sizes:
            group += 1
            arrivals = at + np.sort(rng.uniform(0, 0.5, size))
            waits = service(rng, arrivals)
            rows += [
                (PULSE, group, size, i, float(a), float(w))
                for i, (a, w) in enumerate(zip(arrivals, waits, strict=True))
            ]
            at = float(np.nanmax(arrivals + waits)) + 500.0 + rng.exponential(100.0)
    arrivals = at + np.cumsum(rng.exponential(1000 / rate, int(rate * step_s)))
    waits = service(rng, arrivals)
    rows += [
        (STEP, group + 1, int(rate), i, float(a), float(w))
        for i, (a, w) in enumerate(zip(arrivals, waits, strict=True))
    ]
    tried, kept = retries or (0, 0)
    rows += [(RETRY, group + 2, 40, i, at + i, S0 if i < kept else np.nan) for i in range(tried)]
    return build(rows, lag_ms)


def build(rows: list[tuple[str, int, int, int, float, float]], lag_ms: float = 0.05, promised_ms: int = 50) -> Run:
    """Rows of (phase, group, size, position, sent ms, latency ms or NaN for a refusal)."""
    n = len(rows)
    phase, group, size, position, sent, latency = zip(*rows, strict=True)
    waits, began = np.array(latency), np.round(np.array(sent) * 1000).astype(np.int64)
    served = ~np.isnan(waits)
    end = np.where(served, began + np.round(np.nan_to_num(waits) * 1000).astype(np.int64), -1)
    lag = np.full(n, round(lag_ms * 1000))
    none = np.full(n, -1, dtype=np.int64)
    return Run(
        started="",
        target=TargetInfo("http://simulated", "http"),
        settings=Settings(),
        timer_lag=np.array([10]),
        phase=np.array([PHASES.index(each) for each in phase]),
        group=np.array(group),
        size=np.array(size),
        position=np.array(position),
        intended=began,
        sent=began,
        first=end,
        end=end,
        status=np.where(served, 200, 429),
        promised_ms=np.where(served, -1, promised_ms),
        events=np.zeros(n, dtype=np.int64),
        prompt_tokens=none,
        lag=lag,
        read_request=np.zeros(0, dtype=np.int64),
        read_time=np.zeros(0, dtype=np.int64),
        read_events=np.zeros(0, dtype=np.int64),
    )
