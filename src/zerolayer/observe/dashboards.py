"""A Grafana dashboard over the metrics that this server emits (JSON model, schema version 39)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

_WIDE: Final = 24  # columns of Grafana's grid
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_PICK: Final = 'instance=~"$instance", model_name=~"$model"'
Kind = Literal["stat", "timeseries", "heatmap"]


class Panel(msgspec.Struct, frozen=True):
    """``queries`` are (expression, legend); ``$pick`` in an expression stands for the chosen instances and models."""

    title: str
    kind: Kind
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""
    width: int = 8
    stacked: bool = False


class Row(msgspec.Struct, frozen=True):
    """Panels side by side under a title."""

    title: str
    height: int
    panels: tuple[Panel, ...]


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{{$pick}}[$__rate_interval])))", f"P{q * 100:g}")
        for q in (0.5, 0.9, 0.99)
    )


def _by(label: str, metric: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum by ({label}) (rate({metric}{{$pick}}[$__rate_interval]))", f"{{{{{label}}}}}"),)


ROWS: Final = (
    Row(
        "Now",
        4,
        (
            Panel("Free slots", "stat", "short", (('sum(zerolayer:slots{$pick, state="free"})', ""),), width=4),
            Panel("Requests", "stat", "reqps", (("sum(zerolayer:requests:rate5m{$pick})", ""),), width=4),
            Panel("Refused", "stat", "percentunit", (("avg(zerolayer:refused:ratio5m{$pick})", ""),), width=4),
            Panel(
                "Booked retries served",
                "stat",
                "percentunit",
                (("avg(zerolayer:first_retry_served:ratio15m{$pick})", ""),),
                width=4,
            ),
            Panel(
                "Program hits", "stat", "percentunit", (("avg(zerolayer:program_hits:ratio15m{$pick})", ""),), width=4
            ),
            Panel("Glue", "stat", "percentunit", (("avg(zerolayer:glue:ratio5m{$pick})", ""),), width=4),
        ),
    ),
    Row(
        "Where the time goes",
        8,
        (
            Panel(
                "Requests' time by stage",
                "timeseries",
                "s",
                _by("stage", "zerolayer:stage_seconds_total"),
                "Seconds a second, of all requests together.",
                stacked=True,
            ),
            Panel(
                "Utilisation", "timeseries", "percentunit", (("zerolayer:utilisation:ratio{$pick}", "{{instance}}"),)
            ),
            Panel(
                "Context switches for 100 requests",
                "timeseries",
                "short",
                (("zerolayer:switches_per_100_requests:ratio5m{$pick}", "{{instance}}"),),
            ),
        ),
    ),
    Row(
        "Latency",
        8,
        (
            Panel("Time to first token", "timeseries", "s", _quantiles("vllm:time_to_first_token_seconds")),
            Panel("Between tokens", "timeseries", "s", _quantiles("vllm:inter_token_latency_seconds")),
            Panel(
                "Whole replies",
                "heatmap",
                "s",
                (
                    (
                        "sum by (le) (increase(vllm:e2e_request_latency_seconds_bucket{$pick}[$__rate_interval]))",
                        "{{le}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Promises",
        8,
        (
            Panel("Refused by reason", "timeseries", "reqps", _by("reason", "zerolayer:refused_total")),
            Panel("Bookings by outcome", "timeseries", "ops", _by("outcome", "zerolayer:booking_total")),
            Panel("Deadlines of admitted requests", "timeseries", "ops", _by("kept", "zerolayer:promise_total")),
        ),
    ),
    Row(
        "Promises, closer",
        8,
        (
            Panel("Time left at the deadline", "timeseries", "s", _quantiles("zerolayer:deadline_slack_seconds")),
            Panel("Lateness of booked clients", "timeseries", "s", _quantiles("zerolayer:booking_lateness_seconds")),
            Panel("Time to a refusal", "timeseries", "s", _quantiles("zerolayer:refusal_seconds")),
        ),
    ),
    Row(
        "Work",
        8,
        (
            Panel(
                "Tokens a second",
                "timeseries",
                "short",
                (
                    ("sum(rate(vllm:generation_tokens_total{$pick}[$__rate_interval]))", "generated"),
                    ("sum(rate(vllm:prompt_tokens_total{$pick}[$__rate_interval]))", "prompt"),
                    ("sum(rate(vllm:prompt_tokens_cached_total{$pick}[$__rate_interval]))", "of it kept"),
                ),
            ),
            Panel(
                "Steps by program", "timeseries", "ops", _by("program", "zerolayer:program_steps_total"), stacked=True
            ),
            Panel("Clients that left", "timeseries", "ops", _by("phase", "zerolayer:abandoned_total")),
        ),
    ),
    Row(
        "Who and what",
        8,
        (
            Panel(
                "Compute by tenant",
                "timeseries",
                "short",
                (
                    (
                        "sum by (tenant) (rate(zerolayer:compute_microseconds_total{$pick}[$__rate_interval])) / 1e6",
                        "{{tenant}}",
                    ),
                ),
                "Cores, idle time included: together they are those of the engine.",
                stacked=True,
            ),
            Panel(
                "Limits that were met",
                "timeseries",
                "reqps",
                (
                    (
                        "sum by (limit, action) (rate(zerolayer:limit_total{$pick}[$__rate_interval]))",
                        "{{limit}} {{action}}",
                    ),
                ),
            ),
            Panel(
                "Memory beside the engine's",
                "timeseries",
                "bytes",
                (("sum by (component) (zerolayer:glue_memory_bytes{$pick})", "{{component}}"),),
                stacked=True,
            ),
        ),
    ),
)


def dashboard() -> bytes:
    """The dashboard's file."""
    model = {
        "__inputs": [],
        "title": "zerolayer",
        "uid": "zerolayer",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "tags": ["zerolayer"],
        "templating": {"list": [_datasource(), _choice("instance", "instance"), _choice("model", "model_name")]},
        "panels": list(_panels()),
    }
    return msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n"


def expressions() -> list[str]:
    """Every query of the dashboard."""
    return [expr for row in ROWS for panel in row.panels for expr, _ in panel.queries]


def _panels() -> Iterator[dict[str, Any]]:
    top, number = 0, 0
    for row in ROWS:
        number += 1
        place = {"h": 1, "w": _WIDE, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": place}
        left = 0
        for panel in row.panels:
            number += 1
            place = {"h": row.height, "w": panel.width, "x": left, "y": top + 1}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left += panel.width
        top += 1 + row.height


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": _SOURCE,
            "expr": expr.replace("$pick", _PICK),
            "legendFormat": legend,
            **({"format": "heatmap"} if panel.kind == "heatmap" else {}),
        }
        for place, (expr, legend) in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 30 if panel.stacked else 8, "showPoints": "never"}
        if panel.stacked:
            custom["stacking"] = {"mode": "normal", "group": "A"}
        defaults["custom"] = custom
    options: dict[str, Any] = {"calculate": False, "yAxis": {"unit": panel.unit}} if panel.kind == "heatmap" else {}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _choice(name: str, label: str) -> dict[str, Any]:
    query = f"label_values(zerolayer:slots, {label})"
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
