"""All figures and findings of one run, put together: the one place that decides what a run says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from zerolayer.check import detectors, figures, time_detectors
from zerolayer.check.causes import likely_cause
from zerolayer.check.findings import HIDDEN_QUEUE, INVALID, PASS, SLO_MISSED, Finding, Kind, exit_code
from zerolayer.check.run_file import BASELINE, CAPTURE, CLOSED, PULSE, REPLAY, RETRY, STAGE, STEP, Run
from zerolayer.check.statistics import Estimate, median, quantile
from zerolayer.check.stream_slots import waiting_streams

# A finding that another one explains is not told twice.
_EXPLAINS = {
    Kind.QUEUE: {Kind.STALL, Kind.SHARING},
    Kind.SHAPER: {Kind.STALL, Kind.SHARING},
    Kind.STALL: {Kind.MODE, Kind.SHARING},
    Kind.TICK: {Kind.MODE},
    Kind.FIRST_ARRIVAL: {Kind.MODE},
    Kind.SHARING: {Kind.STALL},
}
_SHOWN_BY_PULSES = {Kind.QUEUE, Kind.SHAPER, Kind.SHARING}


@dataclass(frozen=True)
class Limit:
    """One service level: ``name`` of a figure, and the most ms it may be."""

    name: str
    limit_ms: float


@dataclass(frozen=True)
class LimitResult:
    """Whether a limit was kept: ``missed`` only when the figure itself is above it."""

    limit: Limit
    seen: Estimate

    @property
    def missed(self) -> bool:
        return self.seen.n > 0 and self.seen.value > self.limit.limit_ms


@dataclass(frozen=True)
class Report:
    """What is told about a run. ``findings`` is empty where the client itself was too slow to judge (``lag``)."""

    lag: figures.Lag
    s0: Estimate
    s0_spread: Estimate
    pulses: list[figures.Level]
    order: figures.Order | None
    steps: list[figures.Level]
    stages: list[figures.Level]  # in their order
    users: list[figures.Level]  # of a closed loop
    captured: list[figures.Level]  # of a capture, by how many others were in flight
    stream: figures.Stream | None
    retry: figures.Retry
    prompt_tokens: Estimate
    findings: list[Finding]
    causes: dict[Kind, str]
    limits: list[LimitResult]
    exit_code: int
    sent: Estimate  # median latency of the largest pulses from the real send, beside that from the intended time
    ratios: figures.Ratios | None  # of the largest pulses


LIMIT_NAMES: dict[str, Callable[[Run], Estimate]] = {
    "p50": lambda run: quantile(_latency(run), 0.5),
    "p99": lambda run: quantile(_latency(run), 0.99),
    "ttft_p50": lambda run: quantile(_first(run), 0.5),
    "ttft_p99": lambda run: quantile(_first(run), 0.99),
}


def analyse(run: Run, limits: Iterable[Limit] = ()) -> Report:
    """The whole report. Nothing is concluded, and the exit code is 20, when the client lagged too much."""
    lag = figures.lag(run)
    found = conclude(run) if lag.valid else []
    results = [LimitResult(limit, LIMIT_NAMES[limit.name](run)) for limit in limits]
    code = exit_code(found) or (SLO_MISSED if any(result.missed for result in results) else PASS)
    prompts = run.prompt_tokens[run.served & (run.prompt_tokens >= 0)].astype(np.float64)
    largest = run.rows(PULSE) & run.served
    if largest.any():
        largest &= run.size == run.size[run.rows(PULSE)].max()
    return Report(
        lag=lag,
        s0=figures.unloaded(run),
        s0_spread=figures.unloaded_spread(run),
        pulses=figures.levels(run, PULSE),
        order=figures.order(run),
        steps=figures.levels(run, STEP) + figures.levels(run, REPLAY),
        stages=figures.levels(run, STAGE),
        users=figures.levels(run, CLOSED),
        captured=figures.levels(run, CAPTURE),
        stream=figures.stream(run),
        retry=figures.retry(run),
        prompt_tokens=median(prompts),
        findings=found,
        causes={f.kind: cause for f in found if (cause := likely_cause(run.target.software, f.kind))},
        limits=results,
        exit_code=code if lag.valid else INVALID,
        sent=median(run.sent_latency_ms[largest]),
        ratios=figures.ratios(run),
    )


def conclude(run: Run) -> list[Finding]:
    """Every detector's finding, gravest first, without those that another one explains."""
    single: list[Callable[[Run], Finding | None]] = [
        detectors.line,
        waiting_streams,
        detectors.sharing,
        detectors.captured_line,
        detectors.first_arrival,
        time_detectors.tick,
        time_detectors.stall,
        time_detectors.second_mode,
        time_detectors.buffer,
        time_detectors.leak,
        time_detectors.failures,
    ]
    found = [finding for detect in single if (finding := detect(run)) is not None]
    found += time_detectors.promise(run)
    if not any(finding.kind in _SHOWN_BY_PULSES for finding in found) and (line := time_detectors.overload(run)):
        found.append(line)
    explained = set().union(*(_EXPLAINS.get(finding.kind, set()) for finding in found))
    lines = [finding for finding in found if finding.exit_code == HIDDEN_QUEUE]  # the first says most of the same line
    kept = [finding for finding in found if finding.kind not in explained and finding not in lines[1:]]
    return sorted(kept, key=lambda finding: finding.exit_code or 99)


def _latency(run: Run) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return run.latency_ms[run.rows(BASELINE, PULSE, STEP, REPLAY, STAGE, CLOSED, RETRY) & run.served]


def _first(run: Run) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    first = run.first_ms[run.rows(BASELINE, PULSE, STEP, REPLAY, STAGE, CLOSED, RETRY) & run.served]
    return first[~np.isnan(first)]
