"""Two runs side by side: which figures differ by more than chance, and whether the second run is worse.

Intervals are bootstrapped over pulses, not over requests: the requests of one pulse share its fate. Bounds are
adjusted for the number of figures compared (Bonferroni), so that two runs of one service differ in at most 5 % of
comparisons, whatever the number of figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from zerolayer.check import figures
from zerolayer.check.findings import INVALID, PASS, SLO_MISSED
from zerolayer.check.json_report import finite
from zerolayer.check.run_file import BASELINE, PULSE, RETRY, Run
from zerolayer.check.statistics import CONFIDENCE, Floats, Statistic, bootstrap_draws, median_of
from zerolayer.check.text_report import number

VERSION = 1
DRAWS = 2000
SEED = 7
MIN_FOR_P99 = 300
Units = list[Floats]


@dataclass(frozen=True)
class Difference:
    """One figure in both runs. ``low`` to ``high`` bounds second minus first; ``worse`` is beyond the tolerance."""

    name: str
    unit: str
    first: float
    second: float
    low: float
    high: float
    n_first: int
    n_second: int
    worse: bool
    better: bool
    undecided: bool  # beyond the tolerance, and within what chance can do


@dataclass(frozen=True)
class Comparison:
    """All differences; ``reasons`` say why nothing may be concluded, if so."""

    differences: list[Difference]
    reasons: list[str]
    tolerance: float

    @property
    def exit_code(self) -> int:
        """0 not worse, 4 worse beyond chance and tolerance, 20 not comparable."""
        if self.reasons:
            return INVALID
        return SLO_MISSED if any(each.worse for each in self.differences) else PASS


def compare(first: Run, second: Run, tolerance: float) -> Comparison:
    """Compare figure by figure. ``tolerance`` is the relative worsening that is still accepted (0.05 = 5 %)."""
    reasons = [
        f"In the {name} run the client itself was too late to judge."
        for name, run in (("first", first), ("second", second))
        if not figures.lag(run).valid
    ]
    if first.target.api != second.target.api:
        reasons.append("The runs spoke to different APIs.")
    if first.settings.output_tokens != second.settings.output_tokens or (
        first.settings.prompt_words != second.settings.prompt_words
    ):
        reasons.append("The runs sent requests of different sizes.")
    size = _common_size(first, second)
    if size == 0:
        reasons.append("The runs have no pulse of the same size.")
    pairs = _figures(first, second, size) if not reasons else []
    return Comparison([_difference(*pair, tolerance, len(pairs)) for pair in pairs], reasons, tolerance)


def _common_size(first: Run, second: Run) -> int:
    common = np.intersect1d(first.size[first.rows(PULSE)], second.size[second.rows(PULSE)])
    return int(common.max()) if len(common) else 0


Figure = tuple[str, str, Units, Units, Statistic]


def _figures(first: Run, second: Run, size: int) -> list[Figure]:
    def both(name: str, unit: str, units: Callable[[Run], Units], statistic: Statistic) -> Figure:
        return name, unit, units(first), units(second), statistic

    def alone(run: Run) -> Units:
        return [np.array([value]) for value in run.latency_ms[run.rows(BASELINE) & run.served]]

    def pulses(run: Run) -> Units:
        return _by_group(run, run.latency_ms, run.rows(PULSE) & (run.size == size) & run.served)

    def first_tokens(run: Run) -> Units:
        return _by_group(run, run.first_ms, run.rows(PULSE) & (run.size == size) & run.served)

    def refusals(run: Run) -> Units:
        return _by_group(run, np.where(run.refused, 100.0, 0.0), run.rows(PULSE) & (run.size == size))

    def broken(run: Run) -> Units:
        return _by_group(run, np.where(run.served, 0.0, 100.0), run.rows(RETRY) & (run.position >= 0))

    total = min(sum(map(len, pulses(run))) for run in (first, second))
    tail = 0.99 if total >= MIN_FOR_P99 else 0.9
    candidates = [
        both("S0", "ms", alone, median_of),
        both(f"P50 of pulses of {size}", "ms", pulses, median_of),
        both(f"P{tail * 100:.0f} of pulses of {size}", "ms", pulses, lambda values: np.quantile(values, tail, axis=-1)),
        both(f"first token, pulses of {size}", "ms", first_tokens, median_of),
        both(f"refused of pulses of {size}", "%", refusals, _mean),
        both("promises broken", "%", broken, _mean),
    ]
    if not figures.is_stream(first):
        candidates = [each for each in candidates if not each[0].startswith("first token")]
    return [each for each in candidates if each[2] and each[3]]


def _by_group(run: Run, values: Floats, rows: figures.Mask) -> Units:
    groups = [values[rows & (run.group == group)] for group in np.unique(run.group[rows])]
    return [group[~np.isnan(group)] for group in groups if len(group) and not np.isnan(group).all()]


def _mean(values: Floats) -> Floats:
    return np.asarray(values.mean(axis=-1), dtype=np.float64)


def _difference(
    name: str,
    unit: str,
    first: Units,
    second: Units,
    statistic: Statistic,
    tolerance: float,
    count: int,
) -> Difference:
    rng = np.random.default_rng(SEED)
    draws = bootstrap_draws(second, statistic, rng, DRAWS) - bootstrap_draws(first, statistic, rng, DRAWS)
    tail = (1 - CONFIDENCE) / 2 / count
    a, b = float(statistic(np.concatenate(first))), float(statistic(np.concatenate(second)))
    # A bootstrap over few units is too narrow; Student's t over the normal quantile widens it (Hesterberg 2015).
    few = min(len(first), len(second))
    low, high = -math.inf, math.inf  # of one unit alone nothing is known
    if few > 1:
        widen = math.sqrt(few / (few - 1)) * (1 + 1.5 / few)
        low, high = (b - a + widen * (float(bound) - (b - a)) for bound in np.quantile(draws, [tail, 1 - tail]))
    accepted = tolerance * abs(a) if unit != "%" else 100 * tolerance
    return Difference(
        name,
        unit,
        a,
        b,
        low,
        high,
        sum(map(len, first)),
        sum(map(len, second)),
        worse=low > 0 and b - a > accepted,
        better=high < 0,
        undecided=low <= 0 <= high and abs(b - a) > accepted,
    )


def text(comparison: Comparison) -> str:
    """For a terminal: verdict first, then one line a figure."""
    lines = []
    if comparison.reasons:
        lines.append(f"NOT COMPARABLE (exit {INVALID}): {' '.join(comparison.reasons)}")
        return "\n".join(lines)
    worse = [each.name for each in comparison.differences if each.worse]
    if worse:
        lines.append(f"WORSE (exit {SLO_MISSED}): {', '.join(worse)}")
    else:
        lines.append(f"NOT WORSE (exit {PASS})")
    lines += ["", "figure: first -> second, difference [95 % interval over all figures]"]
    for each in comparison.differences:
        state = "worse" if each.worse else "better" if each.better else "undecided" if each.undecided else "same"
        low, high = (f"{bound:+.3g}" if math.isfinite(bound) else "?" for bound in (each.low, each.high))
        lines.append(
            f"  {each.name:<28} {number(each.first)} -> {number(each.second)} {each.unit}, "
            f"{each.second - each.first:+.3g} [{low}, {high}] "
            f"n={each.n_first}, {each.n_second}: {state}"
        )
    return "\n".join(lines)


def to_json(comparison: Comparison) -> str:
    """One versioned JSON object."""
    differences: list[dict[str, Any]] = [
        {
            "name": each.name,
            "unit": each.unit,
            "first": finite(each.first),
            "second": finite(each.second),
            "difference": {
                "value": finite(each.second - each.first),
                "low": finite(each.low),
                "high": finite(each.high),
            },
            "n_first": each.n_first,
            "n_second": each.n_second,
            "worse": each.worse,
            "better": each.better,
        }
        for each in comparison.differences
    ]
    document = {
        "version": VERSION,
        "exit_code": comparison.exit_code,
        "tolerance": comparison.tolerance,
        "reasons": comparison.reasons,
        "differences": differences,
    }
    return msgspec.json.encode(document).decode()
