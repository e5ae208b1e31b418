"""A report as text: verdict first, then every figure with its interval and n. The HTML report prints the same."""

from __future__ import annotations

import math

from zerolayer.check.figures import Level
from zerolayer.check.findings import INVALID, PASS, Finding
from zerolayer.check.printable import printable
from zerolayer.check.report import Report
from zerolayer.check.run_file import Run
from zerolayer.check.statistics import Estimate, quantile

Rows = list[tuple[str, str]]


def show(estimate: Estimate, unit: str = " ms") -> str:
    """``52.1 ms [50.3, 54.0] n=200``; a bound that the data cannot give is shown as ``?``."""
    if estimate.n == 0 or math.isnan(estimate.value):
        return "none"
    low, high = (number(bound) if not math.isnan(bound) else "?" for bound in (estimate.low, estimate.high))
    return f"{number(estimate.value)}{unit} [{low}, {high}] n={estimate.n}"


def show_share(estimate: Estimate) -> str:
    """A proportion in per cent."""
    if estimate.n == 0:
        return "none"
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}] n={estimate.n}"


def number(value: float) -> str:
    """Three significant digits, and whole numbers above 100."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(report: Report) -> str:
    """One line: what the exit code means for this run."""
    if report.exit_code == INVALID:
        return (
            f"NO VERDICT (exit {INVALID}): this client was {report.lag.worst_ms:.1f} ms late, "
            f"over its limit of {report.lag.limit_ms:.1f} ms. Measure from a machine with an idle core."
        )
    grave = [finding for finding in report.findings if finding.exit_code]
    if grave:
        return f"{', '.join(finding.kind.upper() for finding in grave)} (exit {report.exit_code})"
    if report.exit_code != PASS:
        return f"A LIMIT WAS MISSED (exit {report.exit_code})"
    return f"NO HIDDEN WAIT FOUND (exit {PASS})"


def summary(run: Run, report: Report) -> Rows:
    """The figures that stand above everything: label and text."""
    rows: Rows = [
        ("target", printable(f"{run.target.address} ({run.target.api}{_named(run)})")),
        _waits(run) if run.target.api == "capture" else _own_lag(report),
        ("S0 (unloaded)", f"{show(report.s0)}, spread {show(report.s0_spread)}"),
    ]
    if report.prompt_tokens.n:
        rows.append(("prompt", f"{show(report.prompt_tokens, ' tokens')}, by the server's own count"))
    rows += _pulse_rows(report)
    if report.stream is not None:
        stream = report.stream
        rows.append(
            (
                "stream",
                (
                    f"{show(stream.events_per_read, ' tokens a read')}; first token {show(stream.first)}; "
                    f"gap {show(stream.gap)}"
                ),
            )
        )
    retry = report.retry
    rows.append(("refused", show_share(retry.refused)))
    if retry.kept.n:
        rows.append(("retry kept", f"{show_share(retry.kept)}; promised {show(retry.promised)}"))
    if retry.regret.n:
        rows.append(("promise late by", show(retry.regret)))
    if report.pulses:
        rows.append(("seen up to", _reach(run, report)))
    return rows


def _own_lag(report: Report) -> tuple[str, str]:
    lag = report.lag
    state = "ok" if lag.valid else "TOO LATE TO JUDGE"
    told = f"P99 timer {show(lag.timer)}; send {show(lag.send)}; read {show(lag.read)}; limit {lag.limit_ms:.2f} ms"
    return "client lag", f"{told}: {state}"


def _waits(run: Run) -> tuple[str, str]:
    """Of a capture: from a request's last packet to the reply's first, whatever else ran."""
    waits = run.latency_ms[run.served]
    return "request to reply", "; ".join(f"P{q} {show(quantile(waits, q / 100))}" for q in (50, 90, 99))


def _reach(run: Run, report: Report) -> str:
    """What a verdict covers: what comes only with more at once, or a higher rate, was not looked for."""
    parts = [f"{report.pulses[-1].size} at once"]
    if report.steps:
        parts.append(f"{report.steps[-1].size}/s")
    more = "--largest-pulse, --max-rate" + (", --budget-s" if run.settings.budget_s else "")
    return f"{' and '.join(parts)}; a line that begins only beyond is not seen ({more})"


def _named(run: Run) -> str:
    names = ", ".join(part for part in (run.target.software, run.target.model) if part)
    return f": {names}" if names else ""


def _pulse_rows(report: Report) -> Rows:
    if not report.pulses:
        return []
    last, ratios = report.pulses[-1], report.ratios
    rows: Rows = [
        (f"pulse of {last.size}", f"P50 {show(last.p50)}{_in_s0(ratios.p50 if ratios else None)}"),
        ("", f"P99 {show(last.p99)}{_in_s0(ratios.p99 if ratios else None)}"),
        ("", f"P50 from the real send {show(report.sent)}"),
    ]
    if ratios is not None:
        rows.append(("", f"P99/P50 {show(ratios.tail, '')}"))
    if report.order is not None:
        order = report.order
        rows.append(
            (
                "order in pulses",
                (
                    f"tau {show(order.tau, '')} pulses (z {order.z:.1f}); "
                    f"slope {show(order.slope, ' ms each')}; last behind first {show(order.effect)}"
                ),
            )
        )
    return rows


def _in_s0(ratio: Estimate | None) -> str:
    """How many times S0 that is, with the interval of the ratio."""
    return f" = {show(ratio, ' S0').rpartition(' n=')[0]}" if ratio is not None else ""


_UNITS = {"ms": " ms", "per_s": "/s"}
_SHARES = ("share", "refused", "failed", "kept", "without", "small_gaps")


def evidence(finding: Finding) -> str:
    """The figures that a finding rests on: ``tau 0.98 [0.97, 0.98] n=10; slope 4.99 ms [4.95, 5.01] n=10``."""
    parts = []
    for name, estimate in finding.figures.items():
        ending = next((ending for ending in _UNITS if name.endswith(f"_{ending}")), "")
        label = name.removesuffix(f"_{ending}").replace("_", " ")
        shown = show_share(estimate) if name.endswith(_SHARES) else show(estimate, _UNITS.get(ending, ""))
        if name == "chance":  # is a probability already, and has no interval of its own
            shown = f"{number(estimate.value)} n={estimate.n}"
        parts.append(f"{label} {shown}")
    return "; ".join(parts)


def level_tables(report: Report) -> list[tuple[str, list[list[str]]]]:
    """The tables of load levels that the run has: title, and rows with the header first."""
    kinds = (
        ("pulses", "at once", report.pulses),
        ("steps", "rate/s", report.steps),
        ("stages", "stage", report.stages),
        ("closed loop", "users", report.users),
    )
    tables = [(title, _level_rows(unit, levels)) for title, unit, levels in kinds if levels]
    if report.captured:
        tables.append(("captured", _level_rows("others in flight", report.captured)))
    return tables


def _level_rows(unit: str, levels: list[Level]) -> list[list[str]]:
    header = [unit, "P50 ms", "P99 ms", "first P50 ms", "refused", "failed"]
    with_rate = any(level.achieved.n for level in levels)
    table = [[*header, "sent/s"] if with_rate else header]
    for level in levels:
        row = [
            str(level.size),
            show(level.p50, ""),
            show(level.p99, ""),
            show(level.first_p50, ""),
            show_share(level.refused),
            str(level.failed),
        ]
        table.append([*row, show(level.achieved, "")] if with_rate else row)
    return table


def text(run: Run, report: Report) -> str:
    """The whole report for a terminal."""
    lines = [verdict(report), ""]
    for finding in report.findings:
        lines += [f"  {finding.kind}: {finding.text}", f"      {evidence(finding)}"]
        if cause := report.causes.get(finding.kind):
            lines.append(f"      likely: {cause}")
    lines += [""] if report.findings else []
    lines += [f"{label:<16} {value}" for label, value in summary(run, report)]
    for title, rows in level_tables(report):
        lines += ["", f"{title}, from the intended time; [95 % interval]", *aligned(rows)]
    for result in report.limits:
        state = "MISSED" if result.missed else "kept"
        lines.append(f"limit {result.limit.name} {number(result.limit.limit_ms)} ms: {state}, {show(result.seen)}")
    return "\n".join(lines)


def aligned(rows: list[list[str]]) -> list[str]:
    """Lines of a table, columns under each other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
