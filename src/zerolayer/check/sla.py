"""The SLA page of a service: what its contract promises, what was measured, and the sentence that a customer reads.

Pure: contract and measurement in, Markdown or HTML out. Nothing is claimed that was not measured; what has too few
observations for its percentile is said to have them.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

import msgspec

from zerolayer.check.scrape import Scrape
from zerolayer.contract import Contract

VERSION: Final = 1  # of the page as JSON
_NOT_YET: Final = "not measured yet"
_LATENCIES: Final = (
    ("Time to the first token", "vllm:time_to_first_token_seconds"),
    ("Between two tokens", "vllm:inter_token_latency_seconds"),
    ("Whole reply", "vllm:e2e_request_latency_seconds"),
    ("Time to a refusal", "zerolayer:refusal_seconds"),
)
_FIRST: Final = "vllm:time_to_first_token_seconds"
_RETRIES: Final = ("kept", "early", "late", "broken")


class Heading(msgspec.Struct, frozen=True, tag=str.lower):
    """A section begins."""

    text: str
    level: int = 2


class Quote(msgspec.Struct, frozen=True, tag=str.lower):
    """What a customer reads."""

    text: str


class Paragraph(msgspec.Struct, frozen=True, tag=str.lower):
    """Running text."""

    text: str


class Table(msgspec.Struct, frozen=True, tag=str.lower):
    """Head and rows."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Quote | Paragraph | Table


def page(contract: Contract, scrape: Scrape, day: str) -> list[Block]:
    """The page's blocks; ``day`` is when it was measured, as people write it."""
    model = scrape.label("vllm:num_requests_running", "model_name") or contract.model.served_name
    return [
        Heading(f"Service levels of {model}", 1),
        Quote(sentence(contract, scrape)),
        Paragraph(f"Written from the service's contract and from what it measured since its last start, on {day}."),
        *_promises(contract, scrape),
        *_percentiles(scrape),
        *_refusals(contract, scrape),
        *_abandonment(scrape),
        *_method(),
    ]


def sentence(contract: Contract, scrape: Scrape) -> str:
    """What is promised, and how often it was kept, in the words of somebody who never saw a percentile."""
    deadline = contract.deadline
    first, end, ahead = (_time(ms / 1000) for ms in (deadline.first_token_ms, deadline.default_ms, deadline.horizon_ms))
    kept, all_of_them = _kept(scrape)
    late = _late(scrape, _FIRST, "first_token", deadline.first_token_ms)
    kept = max(0, kept - late)  # as if no request had missed both
    told = f"If we take your request, its first word comes within {first} and its last within {end}"
    told += f"; so it was for {_share(kept, all_of_them)} of {_requests(all_of_them)}. " if all_of_them else ". "
    if not deadline.horizon_ms:
        return told + "If we cannot take it, we say so at once."
    told += f"If we cannot take it, we say so at once and, up to {ahead} ahead, tell you the millisecond to come back"
    served, came = _retries(scrape)
    return told + (f"; of {came:,} who did, {_share(served, came)} were served." if came else ".")


def _promises(contract: Contract, scrape: Scrape) -> list[Block]:
    deadline = contract.deadline
    kept, ended = _kept(scrape)
    rows = (
        _held("First token", scrape, _FIRST, "first_token", deadline.first_token_ms),
        _held("Between two tokens", scrape, "vllm:inter_token_latency_seconds", "per_token", deadline.per_token_ms),
        ("Whole reply", deadline.default_ms, kept, ended),
    )
    return [
        Heading("What every admitted request is promised"),
        Paragraph(
            "A request may name tighter limits of its own; then those are promised. One that cannot keep its limits is "
            "refused before it starts, never late without a word."
        ),
        Table(
            ("Limit", "Promised", "Kept", "Observations"),
            tuple((name, _time(ms / 1000), _share(good, n), f"{n:,}") for name, ms, good, n in rows),
        ),
    ]


def _percentiles(scrape: Scrape) -> list[Block]:
    rows = []
    for title, name in _LATENCIES:
        n = scrape.count(name)
        rows.append((title, *[_quantile(scrape, name, share, n) for share in (0.5, 0.9, 0.99, 0.999)], f"{n:,}"))
    return [Heading("Measured percentiles"), Table(("", "P50", "P90", "P99", "P99.9", "Observations"), tuple(rows))]


def _refusals(contract: Contract, scrape: Scrape) -> list[Block]:
    deadline = contract.deadline
    refused = sum(
        int(scrape.total("zerolayer:refused_total", reason=code)) for code in ("slots_busy", "beyond_horizon")
    )
    requests = int(scrape.total("vllm:request_success_total"))
    served, came = _retries(scrape)
    away = int(scrape.total("zerolayer:booking_total", outcome="no_show"))
    policy = (
        f"Nothing queues. A request that finds no slot in time is refused with status 429, retry-after-ms and a booked "
        f"start up to {_time(deadline.horizon_ms / 1000)} ahead; the same request, sent again then or up to "
        f"{_time(deadline.grace_ms / 1000)} later, is served first. What could start only beyond that is refused with "
        "x-should-retry: false, and what no idle server could do in time with status 422."
        if deadline.horizon_ms
        else "Nothing queues. A request that finds no slot in time is refused with status 429; nothing is booked."
    )
    return [
        Heading("Refusals and retries"),
        Paragraph(policy),
        Table(
            ("Figure", "Measured", "Of"),
            (
                ("Refused for lack of slots", _share(refused, refused + requests), _requests(refused + requests)),
                ("Booked retries that were served", _share(served, came), f"{came:,} retries"),
                ("Booked clients that did not come", _share(away, away + came), f"{away + came:,} bookings"),
            ),
        ),
    ]


def _abandonment(scrape: Scrape) -> list[Block]:
    requests = int(scrape.total("vllm:request_success_total"))
    left = {phase: int(scrape.total("zerolayer:abandoned_total", phase=phase)) for phase in ("prefill", "decode")}
    return [
        Heading("Abandonment"),
        Table(
            ("Clients that left", "Measured", "Of"),
            (
                ("before the first token", _share(left["prefill"], requests), _requests(requests)),
                ("during the reply", _share(left["decode"], requests), _requests(requests)),
            ),
        ),
    ]


def _method() -> list[Block]:
    return [
        Heading("How each figure is measured"),
        Table(
            ("Figure", "From", "To", "Metric"),
            (
                ("First token", "first byte read", "end of the step that chose it", "vllm:time_to_first_token_seconds"),
                ("Between two tokens", "end of a step", "end of the next", "vllm:inter_token_latency_seconds"),
                ("Whole reply", "first byte read", "last byte written", "vllm:e2e_request_latency_seconds"),
                ("Refusal", "first byte read", "last byte written", "zerolayer:refusal_seconds"),
                ("Deadline kept", "arrival", "end of the last step", "zerolayer:promise_total"),
                ("Retry", "booked start", "arrival", "zerolayer:booking_total"),
            ),
        ),
        Paragraph(
            "All on the server, of every request, none sampled. Percentiles are read off a histogram, straight within "
            "a bucket. A percentile needs ten observations beyond it; with fewer it is not told. To measure from "
            "outside: zerolayer pulse URL."
        ),
    ]


def _kept(scrape: Scrape) -> tuple[int, int]:
    kept = int(scrape.total("zerolayer:promise_total", kept="true"))
    return kept, kept + int(scrape.total("zerolayer:promise_total", kept="false"))


def _retries(scrape: Scrape) -> tuple[int, int]:
    """Booked retries that were served, and all that came."""
    came = [int(scrape.total("zerolayer:booking_total", outcome=outcome)) for outcome in _RETRIES]
    return came[0], sum(came)


def _held(title: str, scrape: Scrape, metric: str, limit: str, ms: int) -> tuple[str, int, int, int]:
    observed = scrape.count(metric)
    return title, ms, observed - _late(scrape, metric, limit, ms), observed


def _late(scrape: Scrape, metric: str, limit: str, ms: int) -> int:
    """How often a limit did not hold; where a request was granted more than the contract's, that counts too."""
    missed = int(scrape.total("zerolayer:limit_missed_total", limit=limit))
    return max(missed, scrape.beyond(metric, ms / 1000))


def _quantile(scrape: Scrape, name: str, share: float, n: int) -> str:
    value = scrape.quantile(name, share)
    if value is None or n * (1 - share) < 10 - 1e-9:
        return "too few" if n else _NOT_YET
    return "beyond the buckets" if value == float("inf") else _time(value)


def _share(part: int, whole: int) -> str:
    """Rounded towards failure: 100 % is said of what is 100 %."""
    if not whole:
        return _NOT_YET
    if part == whole or not part:
        return "100 %" if part else "0 %"
    return f"{min(99.99, 100 * part / whole):.2f} %"


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0 ms"


def markdown(blocks: Sequence[Block]) -> str:
    """The page as Markdown."""
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {block.text}")
        elif isinstance(block, Quote):
            parts.append(f"> {block.text}")
        elif isinstance(block, Paragraph):
            parts.append(block.text)
        else:
            lines = [block.head, ("---",) * len(block.head), *block.rows]
            parts.append(
                "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
            )
    return "\n\n".join(parts) + "\n"


def as_json(blocks: Sequence[Block]) -> str:
    """The page for programs: ``{"version": 1, "blocks": [{"type": "heading", ...}, ...]}``."""
    return msgspec.json.encode({"version": VERSION, "blocks": blocks}).decode() + "\n"


_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:16px/1.55 system-ui,sans-serif;max-width:50rem;margin:2rem auto;"
    "padding:0 1rem}blockquote{margin:1.5rem 0;padding:.8rem 1.2rem;border-left:4px solid #2f6fdb;font-size:1.15rem}"
    "div{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.35rem .8rem .35rem 0;border-bottom:1px solid #8884}h2{margin-top:2rem}"
)


def as_html(blocks: Sequence[Block]) -> str:
    """The page as one file of HTML, without foreign parts."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "Service levels")
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _html(block: Block) -> str:
    if isinstance(block, Table):
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in block.head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in block.rows
        )
        return f"<div><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    tag = f"h{block.level}" if isinstance(block, Heading) else "blockquote" if isinstance(block, Quote) else "p"
    return f"<{tag}>{html.escape(block.text)}</{tag}>"
