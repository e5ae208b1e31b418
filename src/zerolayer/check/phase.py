"""Whether completions keep step with a clock that the service hides: a batch tick."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerolayer.check.statistics import Floats, gamma_tail

SEGMENT_MS = 2000.0  # a tick's phase drifts against our clock; within this it does not
MAX_PERIOD_MS, MIN_PERIOD_MS = 200.0, 4.0
BIN_MS, PADDING = 0.25, 4  # times are binned, and segments padded, so that one Fourier transform does all periods
MIN_TIMES = 5  # in a segment that counts
MIN_PROBES = 40
MAX_CHANCE = 1e-3
SURROGATES = 60
MIXING = 2.5  # the longest period looked for, in standard deviations of the time from one send to the next


@dataclass(frozen=True)
class Tick:
    """A period in ms, its bounds, and the chance of so much order by accident (Bonferroni over all periods tried).

    The bounds are half as far away as beats are apart that a segment can tell from each other.
    """

    period_ms: float
    between_ms: tuple[float, float]
    chance: float


def tick(sent_ms: Floats, done_ms: Floats, rng: np.random.Generator) -> Tick | None:
    """The period on whose beat ``done_ms`` falls, if any.

    Rayleigh's statistic at about 2,000 periods (even in frequency), summed over segments of 2 s, has a gamma tail when
    phases are uniform. Sequential probes are not quite uniform: periods so long that the rests between probes do not
    mix the phase are left out, and the order found must exceed that of 60 surrogates, in which the same latencies are
    dealt to other sends. A clock in the service ties them, nothing else does.
    """
    if len(sent_ms) < MIN_PROBES:
        return None
    longest = min(MAX_PERIOD_MS, MIXING * float(np.std(np.diff(sent_ms))))
    if longest < 2 * MIN_PERIOD_MS:
        return None
    scores, frequencies, segments = _scores(done_ms, longest)
    if segments == 0:
        return None
    best = int(np.argmax(scores))
    chance = min(1.0, gamma_tail(float(scores[best]), segments) * len(frequencies))
    if chance > MAX_CHANCE:
        return None
    latencies = done_ms - sent_ms
    for _ in range(SURROGATES):
        surrogate, _frequencies, _segments = _scores(sent_ms + rng.permutation(latencies), longest)
        if float(surrogate.max()) > 0.8 * float(scores[best]):
            return None
    beat, apart = float(frequencies[_slowest(scores, best)]), 1 / SEGMENT_MS
    return Tick(1 / beat, (1 / (beat + apart / 2), 1 / (beat - apart / 2)), chance)


def _scores(times: Floats, longest_ms: float) -> tuple[Floats, Floats, int]:
    """Summed Rayleigh statistic, its frequencies per ms, and the number of segments."""
    bins = round(SEGMENT_MS / BIN_MS)
    length = bins * PADDING
    first, last = math.ceil(length * BIN_MS / longest_ms), math.floor(length * BIN_MS / MIN_PERIOD_MS)
    total, segments = np.zeros(last - first + 1), 0
    offsets = times - times.min()
    for segment in range(int(offsets.max() // SEGMENT_MS) + 1):
        inside = offsets[(offsets >= segment * SEGMENT_MS) & (offsets < (segment + 1) * SEGMENT_MS)]
        if len(inside) < MIN_TIMES:
            continue
        counts = np.bincount(((inside - segment * SEGMENT_MS) / BIN_MS).astype(np.int64), minlength=bins)
        spectrum = np.fft.rfft(counts, length)[first : last + 1]
        total += np.abs(spectrum) ** 2 / len(inside)
        segments += 1
    return total, np.arange(first, last + 1) / (length * BIN_MS), segments


def _slowest(scores: Floats, best: int) -> int:
    """A tick of period P is also on the beat of P/2, P/3, ...: the slowest of the strong beats is meant."""
    near = np.flatnonzero(scores >= 0.75 * scores[best])
    first_group = near[near <= near[0] + PADDING]  # neighbours of one peak
    return int(first_group[np.argmax(scores[first_group])])
