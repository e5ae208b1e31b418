"""From records to the figures of a table row, and from rows to a table."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from lean_client import Record

COLUMNS = (
    ("server", "server"),
    ("run", "run"),
    ("ok", "ok"),
    ("sent", "sent"),
    ("refused", "refused"),
    ("out tok/s", "out_tok_s"),
    ("req/s", "req_s"),
    ("TTFT p50", "ttft_p50_ms"),
    ("p95", "ttft_p95_ms"),
    ("p99 ms", "ttft_p99_ms"),
    ("ITL p50", "itl_p50_ms"),
    ("p99 ms", "itl_p99_ms"),
    ("E2E p50", "e2e_p50_ms"),
    ("p99 ms", "e2e_p99_ms"),
    ("P99/P50", "p99_over_p50"),
    ("P50/S0", "p50_over_s0"),
    ("client us/tok", "client_us_per_token"),
    ("load", "load_average"),
)


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile, interpolated between order statistics; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * q / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def token_times(record: Record) -> list[int]:
    """Arrival time of each event that brought text: events behind the last token (usage, finish) are left out."""
    times = [time for time, count in record.arrivals for _ in range(count)]
    return times[: record.tokens]


def summarise(records: Sequence[Record], start_ns: int, cpu_s: float) -> dict[str, Any]:
    """One run's figures; latencies in milliseconds from the intended send time, of complete answers only."""
    done = [record for record in records if record.ok]
    times = [token_times(record) for record in done]
    first = [(t[0] - record.intended_ns) / 1e6 for record, t in zip(done, times, strict=True) if t]
    gaps = [(b - a) / 1e6 for t in times for a, b in itertools.pairwise(t)]
    whole = [(record.end_ns - record.intended_ns) / 1e6 for record in done]
    wall_s = (max(record.end_ns for record in records) - start_ns) / 1e9 if records else 0.0
    tokens = sum(record.tokens for record in done)
    figures: dict[str, Any] = {
        "sent": len(records),
        "ok": len(done),
        "refused": sum(record.refusals for record in records),
        "retried_ok": sum(record.refusals > 0 for record in done),
        "errors": sorted({f"{record.status} {record.error}".strip() for record in records if not record.ok}),
        "reconnects": sum(record.reconnects for record in records),
        "wall_s": wall_s,
        "tokens": tokens,
        "tokens_per_event": tokens / max(1, sum(len(t) for t in times)),
        "out_tok_s": tokens / wall_s if wall_s else 0.0,
        "req_s": len(done) / wall_s if wall_s else 0.0,
        "client_us_per_token": cpu_s / tokens * 1e6 if tokens else None,
        "client_max_send_lag_ms": max(((r.sent_ns - r.intended_ns) / 1e6 for r in records if r.sent_ns), default=0.0),
    }
    for name, values, marks in (("ttft", first, (50, 95, 99)), ("itl", gaps, (50, 99)), ("e2e", whole, (50, 99))):
        figures |= {f"{name}_p{q}_ms": percentile(values, q) for q in marks}
    figures["p99_over_p50"] = figures["e2e_p99_ms"] / figures["e2e_p50_ms"] if whole else None
    return figures


def median_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each (server, run): the median of every number over the rounds, counts summed."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["server"], row["run"]), []).append(row)
    out = []
    for (server, run), group in groups.items():
        merged: dict[str, Any] = {"server": server, "run": run}
        for key in group[0]:
            values = [row[key] for row in group if isinstance(row[key], int | float)]
            if key in ("ok", "sent", "refused"):
                merged[key] = sum(values)
            elif values:
                merged[key] = statistics.median(values)
        out.append(merged)
    return out


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as aligned text."""
    cells = [[title for title, _ in COLUMNS]]
    cells += [[_cell(row.get(key)) for _, key in COLUMNS] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def ratios(rows: Sequence[Mapping[str, Any]]) -> str:
    """The first server against every other, run by run; empty when there is only one."""
    own = rows[0]["server"] if rows else ""
    by_run = {row["run"]: row for row in rows if row["server"] == own}
    lines = []
    for row in rows:
        mine = by_run.get(row["run"])
        if row["server"] == own or mine is None or not row["out_tok_s"] or not mine.get("e2e_p50_ms"):
            continue
        faster = mine["out_tok_s"] / row["out_tok_s"]
        latency = mine["e2e_p50_ms"] / row["e2e_p50_ms"]
        lines.append(f"{own} / {row['server']}, {row['run']}: {faster:.2f}x out tok/s, {latency:.2f}x E2E p50")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"
    return str(value)
