"""The figures of the zero-queue bench: from records to rows, and from rows to what holds."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from figures import percentile, token_times
from lean_client import Record

EARLY_MS = 5.0
OWN, HALVED = "zerolayer", "zerolayer, half the speed"
CONTROL = "control"
STOLEN = "taken by the hypervisor meanwhile, ms"
OF_CAPACITY = "of capacity, while they arrive"
PER_SECOND = "served a second"


class Alone(msgspec.Struct, frozen=True):
    """What the same server does without a crowd, and with just as many as it has slots. Milliseconds."""

    idle: float = 0.0  # a lone request
    first: float = 0.0  # its first token: reading the prompt
    beside: float = 0.0  # a request among as many others as there are slots
    slower: float = 1.0  # a step of a full server over a step of one request, T(slots)/T(1)
    capacity: float = 0.0  # requests a second


def alone_of(lone: Sequence[Record], crowds: Sequence[Sequence[Record]], slots: int) -> Alone:
    """Of lone requests, and of closed loops of as many workers as slots."""
    crowd = [record for each in crowds for record in each]
    first = [(token_times(record)[0] - record.sent_ns) / 1e6 for record in lone if record.arrivals]
    return Alone(
        percentile(whole_ms(lone), 50) or 0.0,
        percentile(first, 50) or 0.0,
        percentile(whole_ms(crowd), 50) or 0.0,
        step_ms(crowd) / step_ms(lone),
        statistics.fmean(steady_rate(each, slots) for each in crowds),
    )


def step_ms(records: Sequence[Record]) -> float:
    """The median gap between two tokens."""
    return statistics.median(
        (b - a) / 1e6 for record in records if record.ok for a, b in itertools.pairwise(token_times(record))
    )


def figures(records: Sequence[Record], alone: Alone, grace_ms: float) -> dict[str, Any]:
    """One run. Times of admitted requests run from the send of the attempt that was admitted; milliseconds."""
    served = [record for record in records if record.ok]
    idle, beside, capacity = alone.idle, alone.beside, alone.capacity
    whole = whole_ms(served)
    first = [(token_times(record)[0] - began_ns(record)) / 1e6 for record in served if record.arrivals]
    refused = [(answered - sent) / 1e6 for record in records for sent, answered, _ in record.attempts]
    start, last = min(record.intended_ns for record in records), max(record.intended_ns for record in records)
    span = max(record.end_ns for record in records) - start
    at_once = whole_ms([record for record in served if not record.attempts])
    full = start + int(alone.beside * 1e6)  # from then on the slots can all be in use
    arriving = sum(full < record.end_ns <= last for record in served) / (last - full) * 1e9 if last > full else 0.0
    p50, p99 = percentile(whole, 50), percentile(whole, 99)
    return {
        "offered": len(records),
        "served at once": sum(not record.attempts for record in served),
        "served after a refusal": sum(bool(record.attempts) for record in served),
        "refused for good": sum(record.status in (422, 429, 503) for record in records),
        "admitted and late": sum(is_late(record) for record in records),
        "first tokens after their promised time": sum(
            record.first_token_ms is not None and wait > record.first_token_ms
            for record, wait in zip([record for record in served if record.arrivals], first, strict=True)
        ),
        "other errors": sum(not record.ok and record.status not in (422, 429, 503, 504) for record in records),
        PER_SECOND: len(served) / span * 1e9,
        OF_CAPACITY: arriving / capacity if capacity and arriving else None,
        "E2E p50 ms": p50,
        "E2E p99 ms": p99,
        "P99/P50": p99 / p50 if p50 and p99 else None,
        "P99/P50 of those admitted at once": ratio(at_once, 99, 50),
        "P50/S0": p50 / idle if p50 and idle else None,
        "P50/S0 of those admitted at once": (percentile(at_once, 50) or 0.0) / idle if at_once and idle else None,
        "T(slots)/T(1)": alone.slower if idle else None,
        "P99 / P50 among slots": p99 / beside if p99 and beside else None,
        "TTFT p50 ms": percentile(first, 50),
        "TTFT p99 ms": percentile(first, 99),
        "TTFT standard deviation ms": statistics.pstdev(first) if first else None,
        "rank correlation arrival, TTFT": rank_correlation(served),
        "refusal p50 ms": percentile(refused, 50),
        "refusal p99 ms": percentile(refused, 99),
        **bookings(records, grace_ms),
    }


def ratio(times: Sequence[float], high: float, low: float) -> float | None:
    """One percentile over another."""
    over, under = percentile(times, high), percentile(times, low)
    return over / under if over and under else None


def steady_rate(records: Sequence[Record], workers: int) -> float:
    """Requests a second of a closed loop, without its first and its last requests: while all workers are busy."""
    ends = sorted(record.end_ns for record in records)
    return (len(ends) - 2 * workers) / (ends[-workers - 1] - ends[workers - 1]) * 1e9


def bookings(records: Sequence[Record], grace_ms: float) -> dict[str, Any]:
    """What became of attempts that came at the time they were told."""
    within = outside = kept = kept_outside = 0
    lateness = []
    for _, _, late_ms, served in returns(records):
        lateness.append(late_ms)
        if -EARLY_MS <= late_ms <= grace_ms:
            within, kept = within + 1, kept + served
        else:
            outside, kept_outside = outside + 1, kept_outside + served
    if not lateness:
        return {}
    return {
        "retries within the window": within,
        "of them served": kept,
        "retries outside": outside,
        "of these served": kept_outside,
        "lateness p50, p99, max ms": [round(percentile(lateness, q) or 0.0, 2) for q in (50, 99, 100)],
    }


def returns(records: Sequence[Record]) -> Iterator[tuple[Record, int, float, bool]]:
    """Attempts that came for a booking: when they were sent, how late that was in milliseconds, and whether served."""
    for record in records:
        ends = [*[(sent, False) for sent, _, _ in record.attempts[1:]], (began_ns(record), record.ok)]
        if not record.attempts or (len(ends) > len(record.attempts)):
            continue
        for (_, answered, told_ms), (sent, served) in zip(record.attempts, ends, strict=False):
            if told_ms >= 0 and sent > answered:
                yield record, sent, (sent - answered) / 1e6 - told_ms, served


def is_late(record: Record) -> bool:
    """Admitted, and not complete at its deadline."""
    return record.status == 504 or record.error == "error event"


def rank_correlation(records: Sequence[Record]) -> float | None:
    """Spearman's, of the order of sending and the order of first tokens."""
    pairs = [(began_ns(record), token_times(record)[0]) for record in records if record.arrivals]
    if len(pairs) < 3:
        return None
    ranks = [{i: rank for rank, i in enumerate(sorted(range(len(pairs)), key=lambda i: pairs[i][k]))} for k in (0, 1)]
    squares = sum((ranks[0][i] - ranks[1][i]) ** 2 for i in range(len(pairs)))
    return 1 - 6 * squares / (len(pairs) * (len(pairs) ** 2 - 1))


def began_ns(record: Record) -> int:
    """When the last attempt was sent."""
    return record.last_sent_ns or record.sent_ns


def whole_ms(records: Sequence[Record]) -> list[float]:
    return [(record.end_ns - began_ns(record)) / 1e6 for record in records if record.ok]


def verdicts(rows: Sequence[Mapping[str, Any]], slots: int) -> list[dict[str, Any]]:
    """Each figure of the promise with its limit, for our own server; only what was measured."""
    found: list[dict[str, Any]] = []

    def judge(what: str, value: float | None, limit: float, *, least: bool = False) -> None:
        if value is not None:
            holds = value >= limit if least else value <= limit
            sign = "at least" if least else "at most"
            met = "met" if holds else "MISSED"
            found.append({"figure": what, "measured": value, "limit": f"{sign} {limit:.4g}", "met": met})

    own = [row for row in rows if row["server"].startswith(OWN)]
    controls = [row["refusal p99 ms"] for row in rows if row["server"] == CONTROL]
    for row in own:
        run = f"{row['server']}, {row['run']}: "
        within = row.get("retries within the window")
        if row["server"] == HALVED:
            pass  # half of a machine is promised less, and keeps that
        elif "pulses" in row["run"]:
            judge(run + "P99/P50 of those admitted at once, median of the pulses", row["P99/P50 within a pulse"], 1.3)
            figure = "P50/S0 of those admitted at once"
            judge(run + figure, row[figure], 1.5 * (row["T(slots)/T(1)"] or 1.0))
            judge(run + "last end after the first, in prompts", row.get("spread"), 1.2 * (slots - 1))
            if controls:
                judge(run + "refusal p99 over the control's, ms", row["refusal p99 ms"] - min(controls), 2)
        elif row["run"] in ("poisson 0.5", "poisson 0.9"):
            judge(run + "P99 / P50 among slots", row["P99 / P50 among slots"], 1.1)
        elif row["run"] == "poisson 1.5":
            judge(run + OF_CAPACITY, row[OF_CAPACITY], 0.95, least=True)
            bare = next((o for o in own if o["server"] == row["server"] and o["run"].endswith("nothing booked")), None)
            if bare is not None:
                judge(run + "lost to bookings", 1 - row[OF_CAPACITY] / bare[OF_CAPACITY], 0.05)
        if within:
            judge(run + "retries in their window that were served", row["of them served"] / within, 1.0, least=True)
            outside = row["retries outside"]
            judge(run + "retries outside their window", outside / (within + outside), 0.01)
            if outside:
                judge(run + "of these served", row["of these served"] / outside, 0.9, least=True)
        judge(run + "first tokens after their promised time", row["first tokens after their promised time"], 0)
    judge("admitted requests that ended late, of all", sum(row["admitted and late"] for row in own), 1)
    return found


BESIDE = (
    "served at once", "served after a refusal", "refused for good", "E2E p50 ms", "E2E p99 ms", "P99/P50", "P50/S0",
    "TTFT p50 ms", "TTFT p99 ms", "TTFT standard deviation ms", PER_SECOND,
)  # fmt: skip


def beside(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each run of another server beside the same run of ours; only where both were made."""
    own = {row["run"]: row for row in rows if row["server"] == OWN}
    others = [row for row in rows if not row["server"].startswith((OWN, CONTROL)) and row["run"] in own]
    return [
        {"run": f"{row['run']}: {figure}", "ours": own[row["run"]][figure], "theirs": row[figure], "of": row["server"]}
        for row in others
        for figure in BESIDE
        if row.get(figure) is not None and own[row["run"]].get(figure) is not None
    ]
