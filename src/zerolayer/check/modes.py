"""Shape of a latency distribution: how many modes, and where nothing ever lies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerolayer.check.statistics import Floats

GRID = 512
MIN_SHARE = 0.02  # of a further mode
MIN_COUNT = 5
MIN_RATIO = 1.5  # between two modes' latencies
VALLEY = 0.5  # of the lower peak's height


@dataclass(frozen=True)
class Mode:
    """A peak of the density: its latency in the data's unit, and the share of observations that belong to it."""

    at: float
    share: float


@dataclass(frozen=True)
class Plateau:
    """A stretch in which no latency lies, with over 1 % of all on either side."""

    start: float
    end: float


def modes(values: Floats) -> list[Mode]:
    """Peaks of a Gaussian kernel density on log latency (Silverman's bandwidth), each parted by a true valley.

    A mode holds at least 2 % and five of the observations, lies 1.5 times away from its neighbour, and the valley
    between is at most half as high as the lower peak. Fewer than 30 values count as one mode.
    """
    positive = values[values > 0]
    if len(positive) < 30:
        return [Mode(float(np.median(positive)), 1.0)] if len(positive) else []
    logs = np.sort(np.log(positive))
    grid, density = _density(logs)
    borders = _valleys(density)
    parts = [(a, b) for a, b in zip([0, *borders], [*borders, GRID - 1], strict=True) if b > a]
    found = [_mode(logs, grid, density, a, b) for a, b in parts]
    need = max(MIN_SHARE, MIN_COUNT / len(logs))
    large = [mode for mode in found if mode.share >= need]
    return _merge_near(large)


def _density(logs: Floats) -> tuple[Floats, Floats]:
    quartiles = np.quantile(logs, [0.25, 0.75])
    scale = min(float(np.std(logs)), float(quartiles[1] - quartiles[0]) / 1.34) or float(np.std(logs)) or 1e-3
    width = max(0.9 * scale * len(logs) ** -0.2, 0.02)
    grid = np.linspace(logs[0] - 3 * width, logs[-1] + 3 * width, GRID)
    kernels = np.exp(-0.5 * ((grid[:, None] - logs[None, :]) / width) ** 2)
    return grid, kernels.sum(axis=1) / (len(logs) * width * math.sqrt(2 * math.pi))


def _valleys(density: Floats) -> list[int]:
    """Grid indices of the lowest points between peaks that a deep enough valley parts."""
    peaks = [i for i in range(1, GRID - 1) if density[i - 1] < density[i] >= density[i + 1]]
    kept: list[int] = []
    borders: list[int] = []
    for peak in peaks:
        if not kept:
            kept.append(peak)
            continue
        valley = kept[-1] + int(np.argmin(density[kept[-1] : peak + 1]))
        if density[valley] <= VALLEY * min(density[kept[-1]], density[peak]):
            kept.append(peak)
            borders.append(valley)
        elif density[peak] > density[kept[-1]]:
            kept[-1] = peak
    return borders


def _mode(logs: Floats, grid: Floats, density: Floats, start: int, end: int) -> Mode:
    inside = np.count_nonzero((logs >= grid[start]) & (logs < grid[end]))
    peak = start + int(np.argmax(density[start : end + 1]))
    return Mode(math.exp(grid[peak]), inside / len(logs))


def _merge_near(found: list[Mode]) -> list[Mode]:
    merged: list[Mode] = []
    for mode in found:
        if merged and mode.at < MIN_RATIO * merged[-1].at:
            larger = max(mode, merged[-1], key=lambda each: each.share)
            merged[-1] = Mode(larger.at, mode.share + merged[-1].share)
        else:
            merged.append(mode)
    return merged


def plateau(values: Floats) -> Plateau | None:
    """The widest gap (on a log scale) between neighbouring latencies with over 1 % of all on both sides."""
    ordered = np.sort(values[values > 0])
    margin = max(1, math.ceil(0.01 * len(ordered)))
    middle = ordered[margin - 1 : len(ordered) - margin + 1]
    if len(ordered) < 30 or len(middle) < 2:
        return None
    gaps = np.diff(np.log(middle))
    at = int(np.argmax(gaps))
    return Plateau(float(middle[at]), float(middle[at + 1]))
