"""Whether completions keep step with a clock that the service hides: a batch tick."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerolayer.check.statistics import Floats, gamma_tail

SEGMENT_MS = 2000.0  # a tick's phase drifts against our clock; within this it does not
MAX_PERIOD_MS, MIN_PERIOD_MS, CANDIDATES = 200.0, 4.0, 2000
MIN_TIMES = 5  # in a segment that counts
MAX_CHANCE = 1e-3
SURROGATES = 60


@dataclass(frozen=True)
class Tick:
    """A period in ms, and the chance of so much order by accident (Bonferroni over all candidate periods)."""

    period_ms: float
    chance: float


def tick(sent_ms: Floats, done_ms: Floats, rng: np.random.Generator) -> Tick | None:
    """The period on whose beat ``done_ms`` falls, if any.

    Rayleigh's statistic at each of 2,000 periods (even in frequency), summed over segments of 2 s, has a gamma tail
    when phases are uniform. Sequential probes are not quite uniform, so the order found must also exceed that of
    60 surrogates, in which the same latencies are dealt to other sends: a clock in the service ties them, nothing else
    does.
    """
    frequencies = np.linspace(1 / MAX_PERIOD_MS, 1 / MIN_PERIOD_MS, CANDIDATES)
    scores, segments = _scores(done_ms, frequencies)
    if segments == 0:
        return None
    best = int(np.argmax(scores))
    chance = min(1.0, gamma_tail(float(scores[best]), segments) * CANDIDATES)
    if chance > MAX_CHANCE:
        return None
    latencies = done_ms - sent_ms
    for _ in range(SURROGATES):
        surrogate, _segments = _scores(sent_ms + rng.permutation(latencies), frequencies)
        if float(surrogate.max()) > 0.8 * float(scores[best]):
            return None
    return Tick(1 / float(frequencies[_slowest(scores, best)]), chance)


def _scores(times: Floats, frequencies: Floats) -> tuple[Floats, int]:
    total, segments = np.zeros(len(frequencies)), 0
    number = np.floor((times - times.min()) / SEGMENT_MS) if len(times) else times
    for segment in np.unique(number):
        inside = times[number == segment]
        if len(inside) >= MIN_TIMES:
            turns = np.exp(2j * math.pi * np.outer(frequencies, inside))
            total += np.abs(turns.sum(axis=1)) ** 2 / len(inside)
            segments += 1
    return total, segments


def _slowest(scores: Floats, best: int) -> int:
    """A tick of period P is also on the beat of P/2, P/3, ...: the slowest of the strong beats is meant."""
    strong = np.flatnonzero(scores >= 0.9 * scores[best])
    return int(strong[0]) if len(strong) else best
