"""The forms in which a report or the records themselves leave: table, CSV, JSON, CloudEvents."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from zerolayer.guard.ledger.audit import RULE_NAMES
from zerolayer.guard.ledger.record import Entry, Flag, Head, Match, Meter, Outcome
from zerolayer.guard.ledger.usage import COUNTS, Prices, Row, moment

VERSION: Final = 1
_OUTCOMES: Final = frozenset(Outcome)
_STAGES: Final = ("read", "parse", "guard", "tokenise", "wait", "prefill", "decode", "frame", "write")


def table(by: Sequence[str], rows: Sequence[Row]) -> str:
    """Columns for people, with a line of sums where there is more than one row."""
    titles = [*by, *COUNTS]
    lines = [[*key, *[f"{getattr(use, name):,}" for name in COUNTS]] for key, use in rows]
    if len(rows) > 1:
        sums = [f"{sum(getattr(use, name) for _, use in rows):,}" for name in COUNTS]
        lines.append(["all", *[""] * (len(by) - 1), *sums] if by else sums)
    return _columns(titles, lines, len(by))


def price_table(prices: Prices) -> str:
    """Both bills side by side."""
    lines = [
        [bill.tenant, f"{bill.core_us:,}", f"{bill.by_us:,.6f}", f"{bill.hours:,}", f"{bill.by_hour:,.2f}",
         f"{bill.by_hour / bill.by_us:,.1f}" if bill.by_us else "-"]
        for bill in prices.bills
    ]  # fmt: skip
    head = (
        f"{prices.per_hour:g} an hour for {prices.cores} cores is {prices.per_core_us:.3g} a core-microsecond.\n"
        f"Servers ran for {prices.server_hours:,.3f} hours; tenants used {prices.busy:.2%} of their cores' time.\n\n"
    )
    return head + _columns(["tenant", "core_us", "by core-us", "hours", "by hour", "ratio"], lines, 1)


def as_csv(by: Sequence[str], rows: Sequence[Row]) -> str:
    """RFC 4180, with a line of titles."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*by, *COUNTS])
    for key, use in rows:
        writer.writerow([*[_harmless(part) for part in key], *[getattr(use, name) for name in COUNTS]])
    return out.getvalue()


def as_json(by: Sequence[str], rows: Sequence[Row], prices: Prices | None = None) -> bytes:
    """``{"version": 1, "by": [...], "rows": [{...}], "prices": ...}``."""
    shown = [
        dict(zip(by, key, strict=True)) | {name: getattr(use, name) for name in COUNTS} for key, use in rows
    ]  # fmt: skip
    report: dict[str, object] = {"version": VERSION, "by": list(by), "rows": shown}
    if prices is not None:
        report["prices"] = prices
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def cloud_event(record: Entry | Meter | Match, head: Head) -> bytes:
    """One line of CloudEvents 1.0 JSON (https://github.com/cloudevents/spec).

    ``source`` and ``id`` together name a record for good: the ledger's id and the record's sequence.
    """
    if isinstance(record, Entry):
        kind, data = "zerolayer.inference", _inference(record)
    elif isinstance(record, Meter):
        kind, data = "zerolayer.compute", {"core_us": record.core_ns / 1000, "span_us": record.span_us}
    else:
        kind, data = "zerolayer.match", _match(record)
    event = {
        "specversion": "1.0",
        "id": f"{head.ledger_id.hex()}-{record.sequence}",
        "source": f"/zerolayer/{head.node.decode('utf-8', 'replace') or 'node'}",
        "type": kind,
        "subject": record.tenant.decode("utf-8", "replace"),
        "time": moment(record.ended_us).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": data,
    }
    return msgspec.json.encode(event)


def _inference(entry: Entry) -> dict[str, object]:
    data: dict[str, object] = {
        "model": entry.model.decode("utf-8", "replace"),
        "outcome": outcome_name(entry.outcome),
        "status": entry.status,
        "input_tokens": entry.prompt_tokens,
        "cached_tokens": entry.cached_tokens,
        "output_tokens": entry.completion_tokens,
        "core_us": entry.core_ns / 1000,
        "streamed": bool(entry.flags & Flag.STREAMED),
        "answer_cached": bool(entry.flags & Flag.ANSWER_CACHED),
    }
    if any(entry.key_id):
        data["key"] = entry.key_id.hex()
    if not entry.flags & Flag.UNNAMED:
        data |= {
            "request_id": entry.request_id.decode("utf-8", "replace"),
            "route": entry.route.decode("utf-8", "replace"),
            "code": entry.code.decode("utf-8", "replace"),
            "max_tokens": entry.max_tokens,
            "deadline_ms": entry.deadline_ms,
            "ttft_us": entry.first_token_us,
            "stages_us": dict(zip(_STAGES, entry.stages_us, strict=True)),
        }
    return data


def outcome_name(outcome: int) -> str:
    """The word for it; the number itself of one that this version does not know."""
    return Outcome(outcome).name.lower() if outcome in _OUTCOMES else str(outcome)


def _match(match: Match) -> dict[str, object]:
    return {
        "request_id": match.request_id.decode("utf-8", "replace"),
        "rule": RULE_NAMES[match.rule - 1] if 0 < match.rule <= len(RULE_NAMES) else str(match.rule),
        "text": match.text.decode("utf-8", "replace"),
        "logprob": None if math.isnan(match.logprob) else round(match.logprob, 6),
        "token": match.token,
        "tokens": match.tokens,
        "offset": match.offset,
        "sources": [{"message": source.message, "offset": source.offset} for source in match.sources],
        "places": match.places,
    }


def _columns(titles: Sequence[str], lines: Sequence[Sequence[str]], names: int) -> str:
    """Left-aligned for the first ``names`` columns, right-aligned for the others."""
    grid = [list(titles), *[list(line) for line in lines]]
    widths = [max(len(line[at]) for line in grid) for at in range(len(titles))]
    shown = []
    for line in grid:
        cells = [cell.ljust(widths[at]) if at < names else cell.rjust(widths[at]) for at, cell in enumerate(line)]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown) + "\n"


def _harmless(text: str) -> str:
    """A spreadsheet runs what begins like a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
