"""A report as one HTML file that needs nothing else: inline styles and SVG, light and dark, printable."""

from __future__ import annotations

from html import escape

import numpy as np

from zerolayer.check import charts
from zerolayer.check.report import Report
from zerolayer.check.run_file import BASELINE, CAPTURE, CLOSED, PULSE, REPLAY, STAGE, STEP, Run
from zerolayer.check.text_report import evidence, level_tables, number, show, show_share, summary, verdict

_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1a1f24;--soft:#5c6670;--rule:#dfe3e7;--a:#1f6feb;
--b:#c4620a;--c:#8250df;--d:#0f7b6c;--bad:#b3261e;--good:#1a7f37;--card:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--paper:#0f1317;--ink:#e6eaee;--soft:#97a2ad;--rule:#2a3138;--a:#6cb0ff;
--b:#ffab5e;--c:#c9a5ff;--d:#5fd3bf;--bad:#ff8a80;--good:#6fdd8b;--card:#171c22}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1080px;padding:28px 20px 60px;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:15px;font-weight:500;color:var(--soft);margin:0}h2{font-size:16px;margin:34px 0 8px}
.verdict{font-size:25px;line-height:1.25;font-weight:650;margin:4px 0 14px}.bad{color:var(--bad)}
.good{color:var(--good)}
.finding{background:var(--card);border-left:4px solid var(--bad);padding:10px 14px;margin:8px 0;border-radius:4px}
.finding.note{border-color:var(--soft)}.finding b{text-transform:capitalize}.finding i,
.finding small{display:block;color:var(--soft)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--rule);vertical-align:top}
td{overflow-wrap:anywhere}
th{font-weight:500;color:var(--soft)}.wide{overflow-x:auto}.levels td,.levels th{white-space:nowrap;padding-right:9px}
.cards{display:grid;gap:10px;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));margin:18px 0 0}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 14px}
.card span{display:block;font-size:13px;color:var(--soft)}.card strong{font-size:22px;font-weight:600;line-height:1.3;
font-variant-numeric:tabular-nums}.card small{display:block;font-size:12px;color:var(--soft)}
.grid2{display:grid;gap:26px 28px;margin-top:30px;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr))}
figure{margin:0;min-width:0}figcaption{font-size:13px;color:var(--soft)}figcaption b{font-weight:600;color:var(--ink)}
svg{width:100%;max-width:720px;height:auto;display:block}svg text{font:13px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.mark{stroke:var(--bad);stroke-dasharray:4 3}
svg .marked{fill:var(--ink)}.s0{fill:var(--a);opacity:.65}.s1{fill:var(--b);opacity:.6}.heat{fill:var(--a)}
.dot{fill:var(--a);opacity:.45}.cross{stroke:var(--b);stroke-width:1.5;fill:none}.line{fill:none;stroke-width:2}
.l0{stroke:var(--a);fill:var(--a)}.l1{stroke:var(--b);fill:var(--b)}
.l2{stroke:var(--c);fill:var(--c)}.l3{stroke:var(--d);fill:var(--d)}polyline.line{fill:none}
.key{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:4px}.k0{background:var(--a)}
.k1{background:var(--b)}.k2{background:var(--c)}.k3{background:var(--d)}footer{margin-top:34px;font-size:13px;color:var(--soft)}
"""


_PARTS = {
    BASELINE: "alone",
    PULSE: "pulses",
    STEP: "steps",
    REPLAY: "trace",
    STAGE: "stages",
    CLOSED: "users",
}


def html(run: Run, report: Report) -> str:
    """The whole page."""
    grave = "good" if report.exit_code == 0 else "bad"
    parts = [
        f'<div class="verdict {grave}">{escape(verdict(report))}</div>',
        *(_finding(report, index) for index in range(len(report.findings))),
        f'<div class="cards">{"".join(_card(*each) for each in _headlines(report))}</div>',
        f'<div class="grid2">{_charts(run, report)}</div>',
        '<h2>Figures</h2><div class="wide"><table>',
        *(f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>" for label, value in summary(run, report)),
        "</table></div>",
    ]
    parts += [f"<h2>{title.capitalize()}</h2>{table(rows)}" for title, rows in level_tables(report)]
    if report.limits:
        rows = [["limit", "ms", "seen", ""]]
        rows += [
            [each.limit.name, number(each.limit.limit_ms), show(each.seen), "missed" if each.missed else "kept"]
            for each in report.limits
        ]
        parts.append(f"<h2>Limits</h2>{table(rows)}")
    parts.append(
        "<footer>Latencies run from the intended time unless they say otherwise. Brackets are 95 % intervals; ? is a "
        "bound that so few requests cannot give. S0 is the median latency of lone requests.</footer>"
    )
    return page(f"Pulse of {run.target.address}{run.started and ', '}{run.started}", "".join(parts))


def _headlines(report: Report) -> list[tuple[str, str, str]]:
    """What is looked at first: name, figure, and what it is measured against."""
    cards = [("alone (S0)", f"{number(report.s0.value)} ms", _interval(show(report.s0)))] if report.s0.n else []
    if report.ratios is not None:
        last, ratios = report.pulses[-1], report.ratios
        cards.append((f"P50 of {last.size} at once", f"{number(ratios.p50.value)} S0", _interval(show(ratios.p50, ""))))
        cards.append((f"P99 of {last.size} at once", f"{number(ratios.p99.value)} S0", _interval(show(ratios.p99, ""))))
    if report.order is not None:
        cards.append(("order, tau", f"{report.order.tau.value:.2f}", "1: who is sent last waits longest"))
    if report.retry.refused.n:
        cards.append(
            ("refused in pulses", f"{report.retry.refused.value:.1%}", _interval(show_share(report.retry.refused)))
        )
    if report.retry.kept.n:
        cards.append(("promises kept", f"{report.retry.kept.value:.1%}", _interval(show_share(report.retry.kept))))
    lag = report.lag
    if lag.timer.n:  # of a capture there is none
        cards.append(("client lag, P99", f"{number(lag.worst_ms)} ms", f"limit {number(lag.limit_ms)} ms"))
    return [card for card in cards if "nan" not in card[1]]


def _interval(shown: str) -> str:
    """What stands behind a figure: its interval and n, or n alone."""
    return shown[shown.find("[") :] if "[" in shown else shown[shown.find("n=") :]


def _card(name: str, figure: str, note: str) -> str:
    inside = f"<span>{escape(name)}</span><strong>{escape(figure)}</strong><small>{escape(note)}</small>"
    return f'<div class="card">{inside}</div>'


def page(title: str, body: str) -> str:
    """A page of its own around ``body``, which is HTML; ``title`` is text."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _finding(report: Report, index: int) -> str:
    finding = report.findings[index]
    cause = report.causes.get(finding.kind)
    likely = f"<i>Likely: {escape(cause)}</i>" if cause else ""
    kind = "finding" if finding.exit_code else "finding note"
    told = f"{escape(finding.text)}<small>{escape(evidence(finding))}</small>{likely}"
    return f'<div class="{kind}"><b>{escape(finding.kind)}</b>: {told}</div>'


def table(rows: list[list[str]]) -> str:
    """Rows of text as an HTML table, the header first."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f'<div class="wide levels"><table><tr>{head}</tr>{body}</table></div>'


def _charts(run: Run, report: Report) -> str:
    figures = []
    pulses = run.rows(PULSE)
    largest = pulses & (run.size == (run.size[pulses].max() if pulses.any() else 0))
    alone, together = run.rows(BASELINE) & run.served, largest & run.served
    if together.any() and report.s0.n:
        scatter = charts.order_scatter(
            run.position[together].astype(np.float64),
            run.sent_latency_ms[together],
            run.position[largest & run.refused].astype(np.float64),
            report.s0.value,
        )
        figures.append(figure("Order of sending", "Largest pulses. A queue is a ramp; crosses are refusals.", scatter))
    if alone.any():
        series = {"alone": run.latency_ms[alone]}
        for name, others in (("largest pulses", together), ("beside others", run.rows(CAPTURE) & run.served)):
            if others.any():
                series[name] = run.latency_ms[others]
        figures.append(figure("Latency", legend(list(series)), charts.histogram(series, {"S0": report.s0.value})))
    rows = run.rows(*_PARTS, CAPTURE) & run.served
    if rows.any():
        picture = charts.heat_map(run.intended[rows] / 1e6, run.latency_ms[rows], _begins_s(run))
        figures.append(
            figure("Every served request", "The stronger the colour, the more. Bands hide from percentiles.", picture)
        )
    if len(report.pulses) >= 2:
        sizes = np.array([level.size for level in report.pulses], dtype=np.float64)
        lines = {
            "P50": np.array([level.p50.value for level in report.pulses]),
            "P99": np.array([level.p99.value for level in report.pulses]),
        }
        picture = charts.curve(sizes, lines, report.s0.value)
        figures.append(figure("Latency by size of pulse", "Level while slots are free. Dashed: S0.", picture))
    return "".join(figures)


def _begins_s(run: Run) -> dict[str, float]:
    """When each part of the run began, by the name that a reader knows it by. A capture has none."""
    if run.rows(CAPTURE).any():
        return {}
    return {
        name: float(run.intended[run.rows(phase)].min()) / 1e6
        for phase, name in _PARTS.items()
        if run.rows(phase).any()
    }


def figure(title: str, caption: str, svg: str) -> str:
    """A picture under its title, which is text; ``caption`` is HTML."""
    return f"<figure><figcaption><b>{escape(title)}.</b> {caption}</figcaption>{svg}</figure>"


def legend(names: list[str]) -> str:
    """Names behind the colours in which ``charts`` draws their lines or bars."""
    keys = (f'<span class="key k{i % charts.COLOURS}"></span>{escape(name)}' for i, name in enumerate(names))
    return " &nbsp;".join(keys)
