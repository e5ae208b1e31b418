"""A report as JSON, versioned; every key with a unit ends in it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from zerolayer.check.figures import Level
from zerolayer.check.findings import Finding
from zerolayer.check.report import Report
from zerolayer.check.run_file import Run
from zerolayer.check.statistics import Estimate
from zerolayer.check.text_report import verdict

VERSION = 2  # 2 has an interval with every figure


def to_json(run: Run, report: Report) -> str:
    """One JSON object. A figure is {value, low, high, n}; what is not known is null."""
    return msgspec.json.encode(_document(run, report)).decode()


def _document(run: Run, report: Report) -> dict[str, Any]:
    lag, order, stream, retry, ratios = report.lag, report.order, report.stream, report.retry, report.ratios
    return {
        "version": VERSION,
        "exit_code": report.exit_code,
        "verdict": verdict(report),
        "started": run.started,
        "target": run.target,
        "settings": run.settings,
        "client_lag_p99_ms": {
            "timer": figure(lag.timer),
            "send": figure(lag.send),
            "read": figure(lag.read),
            "limit": lag.limit_ms,
        },
        "findings": [_finding(report, finding) for finding in report.findings],
        "s0_ms": figure(report.s0),
        "s0_spread_ms": figure(report.s0_spread),
        "prompt_tokens": figure(report.prompt_tokens),
        **_loads(report),
        "largest_pulse": ratios
        and {
            "p50_over_s0": figure(ratios.p50),
            "p99_over_s0": figure(ratios.p99),
            "p99_over_p50": figure(ratios.tail),
            "p50_from_send_ms": figure(report.sent),
        },
        "order": order
        and {
            "pulses": order.pulses,
            "tau": figure(order.tau),
            "z": finite(order.z),
            "slope_ms": figure(order.slope),
            "effect_ms": figure(order.effect),
        },
        "stream": stream
        and {
            "tokens_per_read": figure(stream.events_per_read),
            "small_gaps": figure(stream.small_gaps),
            "first_token_ms": figure(stream.first),
            "token_gap_ms": figure(stream.gap),
        },
        "refused": figure(retry.refused),
        "retry_kept": figure(retry.kept),
        "promised_ms": figure(retry.promised),
        "regret_ms": figure(retry.regret),
        "limits": [
            {
                "name": each.limit.name,
                "limit_ms": each.limit.limit_ms,
                "seen_ms": figure(each.seen),
                "missed": each.missed,
            }
            for each in report.limits
        ],
    }


def _finding(report: Report, finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "exit_code": finding.exit_code,
        "text": finding.text,
        "likely_cause": report.causes.get(finding.kind),
        "figures": {name: figure(estimate) for name, estimate in finding.figures.items()},
    }


def _loads(report: Report) -> dict[str, Any]:
    """Every load level, by its kind."""
    timed = (
        ("steps", "rate_per_s", report.steps),
        ("stages", "stage", report.stages),
        ("closed_loop", "users", report.users),
    )
    return {"pulses": [_level(level) | {"at_once": level.size} for level in report.pulses]} | {
        kind: [_level(level) | {unit: level.size, "sent_per_s": figure(level.achieved)} for level in levels]
        for kind, unit, levels in timed
    }


def _level(level: Level) -> dict[str, Any]:
    return {
        "p50_ms": figure(level.p50),
        "p99_ms": figure(level.p99),
        "first_p50_ms": figure(level.first_p50),
        "refused": figure(level.refused),
        "failed": level.failed,
    }


def figure(estimate: Estimate) -> dict[str, Any]:
    """An estimate with null for what is not known: JSON has no NaN."""
    return {
        "value": finite(estimate.value),
        "low": finite(estimate.low),
        "high": finite(estimate.high),
        "n": estimate.n,
    }


def finite(value: float) -> float | None:
    """The value, or None."""
    return value if math.isfinite(value) else None
