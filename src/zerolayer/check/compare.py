"""Two runs side by side: which figures differ by more than chance, and whether the second run is worse.

Intervals are bootstrapped over pulses, not over requests: the requests of one pulse share its fate. Bounds are
adjusted for the number of figures compared (Bonferroni), so that two runs of one service differ in at most 5 % of
comparisons, whatever the number of figures.

That knows the pulses of each run, and not what else the machine did meanwhile. Where the service was on the client's
own machine, and that machine was quicker in one run than in the other, times must differ at equal pace too
(``compare_machine.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from zerolayer.check import figures
from zerolayer.check.compare_machine import DRAWS, SEED, Machine, beside, machine
from zerolayer.check.findings import INVALID, PASS, SLO_MISSED
from zerolayer.check.json_report import finite
from zerolayer.check.run_file import BASELINE, PULSE, RETRY, Run
from zerolayer.check.statistics import CONFIDENCE, Estimate, Floats, Statistic, bootstrap_draws, median_of
from zerolayer.check.text_report import number

VERSION = 2  # 2 adds the machine's own pace
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
    undecided: bool  # beyond the tolerance, and within what chance or the machine can do
    machine: Machine | None = None  # which would explain why it seems worse, where it is neither

    @property
    def state(self) -> str:
        """In a word."""
        return "worse" if self.worse else "better" if self.better else "undecided" if self.undecided else "same"


@dataclass(frozen=True)
class Comparison:
    """All differences; ``reasons`` say why nothing may be concluded, if so.

    ``machines`` has the machine's own pace by phase, where it is known; ``ratio`` is P50 of pulses in times of lone
    requests beside them, in both runs with the interval of the difference. Both are told, and are no verdict.
    """

    differences: list[Difference]
    reasons: list[str]
    tolerance: float
    machines: dict[str, Machine]
    ratio: tuple[float, float, Estimate] | None

    @property
    def exit_code(self) -> int:
        """0 not worse, 4 worse beyond chance and tolerance, 20 not comparable, or worse only as the machine was."""
        if self.reasons:
            return INVALID
        if any(each.worse for each in self.differences):
            return SLO_MISSED
        return INVALID if any(each.machine for each in self.differences) else PASS


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
    if reasons:
        return Comparison([], reasons, tolerance, {}, None)
    found = _figures(first, second, size)
    differences = []
    for each in found:
        under = machine(first, second, each.phase, each.statistic) if each.unit == "ms" else None
        differences.append(_difference(each, under, tolerance, len(found)))
    seen = {phase: machine(first, second, phase) for phase in (BASELINE, PULSE)}
    machines = {phase: each for phase, each in seen.items() if each is not None}
    return Comparison(differences, reasons, tolerance, machines, _ratio(first, second, size))


def _ratio(first: Run, second: Run, size: int) -> tuple[float, float, Estimate] | None:
    a, b = beside(first, size), beside(second, size)
    if a is None or b is None:
        return None
    value, rounds = b.value - a.value, min(a.rounds, b.rounds)
    return a.value, b.value, Estimate(value, *_bounds(value, b.draws - a.draws, rounds, 1), rounds)


def _common_size(first: Run, second: Run) -> int:
    common = np.intersect1d(first.size[first.rows(PULSE)], second.size[second.rows(PULSE)])
    return int(common.max()) if len(common) else 0


@dataclass(frozen=True)
class _Figure:
    name: str
    unit: str
    phase: str  # from which its requests are
    first: Units
    second: Units
    statistic: Statistic


def _figures(first: Run, second: Run, size: int) -> list[_Figure]:
    def both(name: str, unit: str, phase: str, units: Callable[[Run], Units], statistic: Statistic) -> _Figure:
        return _Figure(name, unit, phase, units(first), units(second), statistic)

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
    of_tail: Statistic = lambda values: np.quantile(values, tail, axis=-1)  # noqa: E731
    candidates = [
        both("S0", "ms", BASELINE, alone, median_of),
        both(f"P50 of pulses of {size}", "ms", PULSE, pulses, median_of),
        both(f"P{tail * 100:.0f} of pulses of {size}", "ms", PULSE, pulses, of_tail),
        both(f"first token, pulses of {size}", "ms", PULSE, first_tokens, median_of),
        both(f"refused of pulses of {size}", "%", PULSE, refusals, _mean),
        both("promises broken", "%", RETRY, broken, _mean),
    ]
    if not figures.is_stream(first):
        candidates = [each for each in candidates if not each.name.startswith("first token")]
    return [each for each in candidates if each.first and each.second]


def _by_group(run: Run, values: Floats, rows: figures.Mask) -> Units:
    groups = [values[rows & (run.group == group)] for group in np.unique(run.group[rows])]
    return [group[~np.isnan(group)] for group in groups if len(group) and not np.isnan(group).all()]


def _mean(values: Floats) -> Floats:
    return np.asarray(values.mean(axis=-1), dtype=np.float64)


def _difference(figure: _Figure, under: Machine | None, tolerance: float, count: int) -> Difference:
    """One of ``count`` figures; what ``under`` it differed itself must not be what makes it worse or better."""
    rng = np.random.default_rng(SEED)
    first, second, statistic = figure.first, figure.second, figure.statistic
    seconds = bootstrap_draws(second, statistic, rng, DRAWS)
    firsts = bootstrap_draws(first, statistic, rng, DRAWS)
    a, b = float(statistic(np.concatenate(first))), float(statistic(np.concatenate(second)))
    few = min(len(first), len(second))
    accepted = tolerance * abs(a) if figure.unit != "%" else 100 * tolerance
    low, high = _bounds(b - a, seconds - firsts, few, count)
    worse, better = low > 0 and b - a > accepted, high < 0
    undecided, why = low <= 0 <= high and abs(b - a) > accepted, None
    if under is not None and under.differs and (worse or better):
        even = b / under.ratio.value - a
        even_low, even_high = _bounds(even, seconds / under.draws - firsts, few, count)
        if worse and not (even_low > 0 and even > accepted):
            worse, undecided, why = False, True, under
        if better and not even_high < 0:
            better, undecided = False, True
    sizes = sum(map(len, first)), sum(map(len, second))
    return Difference(figure.name, figure.unit, a, b, low, high, *sizes, worse, better, undecided, why)


def _bounds(difference: float, draws: Floats, few: int, count: int) -> tuple[float, float]:
    """Of one of ``count`` differences, of ``few`` units."""
    if few < 2:
        return -math.inf, math.inf  # of one unit alone nothing is known
    tail = (1 - CONFIDENCE) / 2 / count
    # A bootstrap over few units is too narrow; Student's t over the normal quantile widens it (Hesterberg 2015).
    widen = math.sqrt(few / (few - 1)) * (1 + 1.5 / few)
    low, high = (difference + widen * (float(bound) - difference) for bound in np.quantile(draws, [tail, 1 - tail]))
    return low, high


def text(comparison: Comparison) -> str:
    """For a terminal: verdict first, then one line a figure."""
    if comparison.reasons:
        return f"NOT COMPARABLE (exit {INVALID}): {' '.join(comparison.reasons)}"
    lines = [*_verdict(comparison), "", "figure: first -> second, difference [95 % interval over all figures]"]
    for each in comparison.differences:
        low, high = (f"{bound:+.3g}" if math.isfinite(bound) else "?" for bound in (each.low, each.high))
        lines.append(
            f"  {each.name:<28} {number(each.first)} -> {number(each.second)} {each.unit}, "
            f"{each.second - each.first:+.3g} [{low}, {high}] "
            f"n={each.n_first}, {each.n_second}: {each.state}"
        )
    told = [
        f"  this machine, {phase} phase".ljust(31)
        + f"{number(each.first_ms)} -> {number(each.second_ms)} ms for the same work: {_slower(each)}"
        for phase, each in comparison.machines.items()
    ]
    if comparison.ratio is not None:
        first, second, difference = comparison.ratio
        told.append(
            f"  pulses, in lone requests     {number(first)} -> {number(second)} times, {difference.value:+.3g} "
            f"[{difference.low:+.3g}, {difference.high:+.3g}]"
        )
    if told:
        lines += ["", "beside them, for your own judgement [95 % interval each]", *told]
    return "\n".join(lines)


def _verdict(comparison: Comparison) -> list[str]:
    worse = [each.name for each in comparison.differences if each.worse]
    if worse:
        return [f"WORSE (exit {SLO_MISSED}): {', '.join(worse)}"]
    seeming = {each.name: each.machine for each in comparison.differences if each.machine is not None}
    if not seeming:
        return [f"NOT WORSE (exit {PASS})"]
    names, under = ", ".join(seeming), next(iter(seeming.values()))
    why = f"In the second run the machine itself was {_slower(under)}, and without that none is worse."
    return [f"UNDECIDED (exit {INVALID}): {names}", f"{why} Save both again, in turn."]


def _slower(under: Machine) -> str:
    """``16 % slower [9, 22]``."""
    percent, low, high = (100 * (each - 1) for each in (under.ratio.value, under.ratio.low, under.ratio.high))
    if not under.differs:
        return f"the same, {percent:+.1f} % [{low:+.1f}, {high:+.1f}]"
    if percent < 0:
        return f"{-percent:.1f} % quicker [{-high:.1f}, {-low:.1f}]"
    return f"{percent:.1f} % slower [{low:.1f}, {high:.1f}]"


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
            "undecided": each.undecided,
        }
        for each in comparison.differences
    ]
    document = {
        "version": VERSION,
        "exit_code": comparison.exit_code,
        "tolerance": comparison.tolerance,
        "reasons": comparison.reasons,
        "differences": differences,
        "machine": {
            phase: {"first_ms": each.first_ms, "second_ms": each.second_ms, "ratio": _estimate(each.ratio)}
            for phase, each in comparison.machines.items()
        },
        "pulses_in_lone_requests": comparison.ratio
        and {
            "first": comparison.ratio[0],
            "second": comparison.ratio[1],
            "difference": _estimate(comparison.ratio[2]),
        },
    }
    return msgspec.json.encode(document).decode()


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: finite(getattr(estimate, name)) for name in ("value", "low", "high")}
