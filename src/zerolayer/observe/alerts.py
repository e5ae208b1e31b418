"""Prometheus recording and alert rules over the metrics that this server emits, and their tests, as YAML.

Format: https://prometheus.io/docs/prometheus/latest/configuration/recording_rules/ and .../unit_testing_rules/. Ratios
are recorded by instance and model, so that dashboards and alerts read the same figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from zerolayer.errors import HELP

_BY: Final = "sum by (job, instance, model_name)"
_REFUSED: Final = 'zerolayer:refused_total{reason=~"slots_busy|beyond_horizon"}'
_BOOKED: Final = 'zerolayer:refused_total{reason="slots_busy"}'
_RETRIES: Final = 'zerolayer:booking_total{outcome=~"kept|early|late|broken"}'
_EARLY: Final = 'zerolayer:booking_total{outcome="early"}'
_KEPT: Final = 'zerolayer:booking_total{outcome="kept"}'
_FULL: Final = 'zerolayer:program_steps_total{program="full"}'
_SERIES: Final = 'instance="a", job="zerolayer", model_name="m"'


class Record(msgspec.Struct, frozen=True):
    """A recorded figure; ``about`` becomes a comment."""

    name: str
    about: str
    expr: str


class Alert(msgspec.Struct, frozen=True):
    """A band that a figure has left for as long as ``after``."""

    name: str
    severity: str
    after: str
    expr: str
    summary: str
    remedy: str


def _rate(series: str, window: str = "5m") -> str:
    return f"{_BY} (rate({series}[{window}]))"


RECORDS: Final = (
    Record("zerolayer:requests:rate5m", "Admitted requests a second.", _rate("vllm:request_success_total")),
    Record("zerolayer:refusals:rate5m", "Refusals for lack of slots a second.", _rate(_REFUSED)),
    Record(
        "zerolayer:refused:ratio5m",
        "Share of refused requests among those that were admitted or refused.",
        "(zerolayer:refusals:rate5m or 0 * zerolayer:requests:rate5m)"
        " / ((zerolayer:refusals:rate5m or 0 * zerolayer:requests:rate5m) + zerolayer:requests:rate5m)",
    ),
    Record(
        "zerolayer:retries_per_refusal:ratio15m",
        "Retries for each refused request; one that comes early is told again, and is no new request.",
        f"{_rate(_RETRIES, '15m')} / ({_rate(_BOOKED, '15m')} - {_rate(_EARLY, '15m')})",
    ),
    Record(
        "zerolayer:first_retry_served:ratio15m",
        "Share of booked retries that were served when they came.",
        f"{_rate(_KEPT, '15m')} / {_rate(_RETRIES, '15m')}",
    ),
    Record(
        "zerolayer:program_hits:ratio15m",
        "Share of steps that a prepared program served.",
        f"1 - ({_rate(_FULL, '15m')}"
        f" or 0 * {_rate('zerolayer:program_steps_total', '15m')}) / {_rate('zerolayer:program_steps_total', '15m')}",
    ),
    Record(
        "zerolayer:glue:ratio5m",
        "Share of the busy time that was not arithmetic.",
        "1 - rate(zerolayer:arithmetic_seconds_total[5m]) / rate(zerolayer:busy_seconds_total[5m])",
    ),
    Record(
        "zerolayer:utilisation:ratio",
        "Share of slots that are taken.",
        f'1 - {_BY} (zerolayer:slots{{state="free"}}) / {_BY} (zerolayer:slots)',
    ),
    Record(
        "zerolayer:switches_per_100_requests:ratio5m",
        "Context switches of the process for 100 requests.",
        f"100 * {_rate('zerolayer:context_switches_total')} / zerolayer:requests:rate5m",
    ),
)

ALERTS: Final = (
    Alert(
        "ZerolayerRefusesTooMuch",
        "warning",
        "10m",
        "zerolayer:refused:ratio5m > 0.03",
        "More than 3 % of the requests are refused.",
        "Add a node, or give requests shorter answers; `zerolayer simulate` says how many nodes the load needs.",
    ),
    Alert(
        "ZerolayerRefusesTooLittle",
        "info",
        "1h",
        "zerolayer:refused:ratio5m < 0.005 and zerolayer:requests:rate5m > 0",
        "Less than 0.5 % of the requests are refused: slots are paid for that nobody needs.",
        "Take a node away, or leave it as a reserve and silence this.",
    ),
    Alert(
        "ZerolayerRetriesTooOften",
        "warning",
        "15m",
        "zerolayer:retries_per_refusal:ratio15m > 1.2",
        "More than 1.2 retries for a refusal: clients do not come back at the time that they are told.",
        "Let clients read retry-after-ms; `zerolayer pulse` shows what theirs do.",
    ),
    Alert(
        "ZerolayerFirstRetryNotServed",
        "critical",
        "5m",
        "zerolayer:first_retry_served:ratio15m < 0.995",
        "Fewer than 99.5 % of the booked retries were served when they came.",
        "See zerolayer:booking_total by outcome: early and late are the clients' clocks, broken is this server.",
    ),
    Alert(
        "ZerolayerProgramMisses",
        "info",
        "15m",
        "zerolayer:program_hits:ratio15m < 0.85",
        "Fewer than 85 % of the steps were served by a prepared program.",
        "Declare the parameters that clients send most as a [[program]] of the contract.",
    ),
    Alert(
        "ZerolayerGlueHigh",
        "warning",
        "10m",
        "zerolayer:glue:ratio5m > 0.04",
        "More than 4 % of the busy time is not arithmetic.",
        "Run `zerolayer doctor` on the machine: something else may have its cores.",
    ),
    Alert(
        "ZerolayerFakeBusy",
        "info",
        "30m",
        "stddev_over_time(zerolayer:utilisation:ratio[30m]) < 0.05"
        " and avg_over_time(zerolayer:utilisation:ratio[30m]) > 0.5",
        "Slots are taken as evenly as real traffic never takes them: a loop, a benchmark or a stuck client.",
        "See who holds the slots on the live page.",
    ),
    Alert(
        "ZerolayerPromiseMissed",
        "critical",
        "0m",
        'increase(zerolayer:promise_total{kept="false"}[5m]) > 0'
        ' or increase(zerolayer:booking_total{outcome="broken"}[5m]) > 0',
        "A request that was admitted or booked was not served in time.",
        "Run `zerolayer doctor`; kill -USR1 the server for its last steps.",
    ),
)


def rules() -> str:
    """The rule file."""
    return "\n".join(_rules()) + "\n"


def _rules() -> Iterator[str]:
    yield "# Written by `zerolayer dashboards`; change src/zerolayer/observe/alerts.py, not this file."
    yield "groups:"
    yield "  - name: zerolayer.figures"
    yield "    interval: 15s"
    yield "    rules:"
    for record in RECORDS:
        yield f"      # {record.about}"
        yield f"      - record: {record.name}"
        yield f"        expr: {json.dumps(record.expr)}"
    yield "  - name: zerolayer.bands"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {json.dumps(alert.expr)}"
        yield f"        for: {alert.after}"
        yield "        labels:"
        yield f"          severity: {alert.severity}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(alert.summary)}"
        yield f"          description: {json.dumps(alert.remedy)}"
        yield f"          runbook: {json.dumps(HELP + alert.name)}"


class Case(msgspec.Struct, frozen=True):
    """Series as (name with labels, values by minute), and whether an alert fires on them at ``at``."""

    alert: str
    fires: bool
    at: str
    series: Sequence[tuple[str, str]]


def _series(name: str, values: str, **labels: str) -> tuple[str, str]:
    told = "".join(f', {key}="{value}"' for key, value in labels.items())
    return f"{name}{{{_SERIES}{told}}}", values


def _refusing(refused: int) -> list[tuple[str, str]]:
    return [
        _series("vllm:request_success_total", "0+1000x120", finished_reason="stop"),
        _series("zerolayer:refused_total", f"0+{refused}x120", reason="slots_busy"),
    ]


def _booking(refused: int, kept: int, early: int, late: int) -> list[tuple[str, str]]:
    outcomes = {"kept": kept, "early": early, "late": late, "broken": 0, "no_show": 0}
    booked = [_series("zerolayer:booking_total", f"0+{n}x120", outcome=outcome) for outcome, n in outcomes.items()]
    return [_series("zerolayer:refused_total", f"0+{refused}x120", reason="slots_busy"), *booked]


def _glue(arithmetic: int) -> list[tuple[str, str]]:
    busy = _series("zerolayer:busy_seconds_total", "0+50x120")
    return [busy, _series("zerolayer:arithmetic_seconds_total", f"0+{arithmetic / 10}x120")]


def _steps(full: int) -> list[tuple[str, str]]:
    hits = _series("zerolayer:program_steps_total", f"0+{1000 - full}x120", program="greedy")
    return [hits, _series("zerolayer:program_steps_total", f"0+{full}x120", program="full")]


def _slots(free: str, taken: str) -> list[tuple[str, str]]:
    return [_series("zerolayer:slots", free, state="free"), _series("zerolayer:slots", taken, state="running")]


def _promises(missed: str) -> list[tuple[str, str]]:
    return [_series("zerolayer:promise_total", missed, kept="false")]


CASES: Final = (
    Case("ZerolayerRefusesTooMuch", True, "40m", _refusing(40)),
    Case("ZerolayerRefusesTooMuch", False, "40m", _refusing(20)),
    Case("ZerolayerRefusesTooLittle", True, "90m", _refusing(1)),
    Case("ZerolayerRefusesTooLittle", True, "90m", _refusing(1)[:1]),
    Case("ZerolayerRefusesTooLittle", False, "90m", _refusing(10)),
    Case("ZerolayerRetriesTooOften", True, "60m", _booking(100, 90, 0, 40)),
    Case("ZerolayerRetriesTooOften", False, "60m", _booking(110, 100, 10, 0)),
    Case("ZerolayerFirstRetryNotServed", True, "60m", _booking(100, 99, 0, 1)),
    Case("ZerolayerFirstRetryNotServed", False, "60m", _booking(1000, 999, 0, 1)),
    Case("ZerolayerProgramMisses", True, "60m", _steps(200)),
    Case("ZerolayerProgramMisses", False, "60m", _steps(100)),
    Case("ZerolayerProgramMisses", False, "60m", _steps(0)[:1]),
    Case("ZerolayerGlueHigh", True, "40m", _glue(470)),
    Case("ZerolayerGlueHigh", False, "40m", _glue(490)),
    Case("ZerolayerFakeBusy", True, "90m", _slots("4x120", "12x120")),
    Case("ZerolayerFakeBusy", False, "90m", _slots("16x120", "0x120")),
    Case("ZerolayerFakeBusy", False, "90m", _slots("0 8 " * 60, "16 8 " * 60)),
    Case("ZerolayerPromiseMissed", True, "11m", _promises("0x10 1x120")),
    Case("ZerolayerPromiseMissed", False, "40m", _promises("0x120")),
)


def rule_tests(rule_file: str) -> str:
    """Input of ``promtool test rules``: for each alert what makes it fire, and what does not."""
    return "\n".join(_tests(rule_file)) + "\n"


def _tests(rule_file: str) -> Iterator[str]:
    yield "# Written by `zerolayer dashboards`. Run it: promtool test rules " + rule_file.replace("rules", "rules.test")
    yield f"rule_files: [{rule_file}]"
    yield "evaluation_interval: 1m"
    yield "tests:"
    severity = {alert.name: alert for alert in ALERTS}
    for case in CASES:
        alert = severity[case.alert]
        yield f"  - name: {case.alert} {'fires' if case.fires else 'is quiet'}"
        yield "    interval: 1m"
        yield "    input_series:"
        for name, values in case.series:
            yield f"      - {{series: {json.dumps(name)}, values: {json.dumps(values.strip())}}}"
        yield "    alert_rule_test:"
        yield f"      - eval_time: {case.at}"
        yield f"        alertname: {case.alert}"
        if not case.fires:
            yield "        exp_alerts: []"
            continue
        yield "        exp_alerts:"
        labels = f"severity: {alert.severity}, job: zerolayer, instance: a, model_name: m"
        if case.alert == "ZerolayerPromiseMissed":
            labels += ', kept: "false"'
        yield f"          - exp_labels: {{{labels}}}"
        told = (
            f"summary: {json.dumps(alert.summary)}, description: {json.dumps(alert.remedy)}, "
            f"runbook: {json.dumps(HELP + alert.name)}"
        )
        yield f"            exp_annotations: {{{told}}}"
