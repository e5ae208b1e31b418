"""Charts as inline SVG, coloured by the page's own variables: pure functions from arrays to text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import numpy as np

from zerolayer.check.statistics import Floats

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 22, 48
NAMES = 62  # to the right of lines, for their names
APART = 14  # from one name to the next
COLUMNS, BANDS, BARS = 72, 26, 48
COLOURS = 4  # of lines
Line = tuple[Floats, Floats]  # x and y of every point


@dataclass(frozen=True)
class Axis:
    """A scale from data to pixels; ``log`` for decades."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of ``value``."""
        a, b, x = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (x - a) / ((b - a) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """About five round values: of the decades where the axis has enough of them, else evenly spaced."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
                found = [s * 10**p for p in powers for s in steps if self.low <= s * 10**p <= self.high]
                if len(found) >= 3:
                    return found
        raw = (self.high - self.low) / 5 or 1.0
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(s * power for s in (1, 2, 5, 10) if s * power >= raw)
        return [float(v) for v in np.arange(math.ceil(self.low / step) * step, self.high + step / 1e6, step)]


def _x_axis(low: float, high: float, *, log: bool = False, right: int = RIGHT) -> Axis:
    return Axis(low, high, LEFT, WIDTH - right, log)


def _y_axis(low: float, high: float, *, log: bool = False) -> Axis:
    return Axis(low, high, HEIGHT - BOTTOM, TOP, log)


def _frame(
    x: Axis, y: Axis, x_label: str, y_label: str, inside: str, title: str, x_ticks: list[float] | None = None
) -> str:
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>']
    for tick in y.ticks():
        at = y.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts += [
        f'<text x="{x.at(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:g}</text>'
        for tick in (x_ticks or x.ticks())
    ]
    parts.append(inside)
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{x.end}" y1="{y.start}" y2="{y.start}"/>')
    middle = (LEFT + x.end) / 2
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}</text>')
    parts.append(
        f'<text class="label" transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{y_label}</text></svg>'
    )
    return "".join(parts)


def _range(values: Floats) -> tuple[float, float]:
    low, high = max(float(values.min()), 1e-3), max(float(values.max()), 2e-3)
    return low / 1.15, high * 1.15


def histogram(series: dict[str, Floats], marks: dict[str, float]) -> str:
    """Shares of requests over log latency in ms, one outline a series (at most two), with marked latencies."""
    everything = np.concatenate([values for values in series.values() if len(values)])
    x = _x_axis(*_range(everything), log=True)
    edges = np.geomspace(x.low, x.high, BARS + 1)
    counts = {name: np.histogram(values, edges)[0] / max(1, len(values)) for name, values in series.items()}
    y = _y_axis(0.0, 100 * max(float(count.max()) for count in counts.values()) * 1.1)
    parts = []
    for index, (name, count) in enumerate(counts.items()):
        bars = [
            f'<rect class="s{index}" x="{x.at(a):.1f}" y="{y.at(100 * c):.1f}" '
            f'width="{max(0.5, x.at(b) - x.at(a) - 1):.1f}" height="{y.start - y.at(100 * c):.1f}"/>'
            for a, b, c in zip(edges, edges[1:], count, strict=False)
            if c > 0
        ]
        parts.append(f"<g><title>{name}</title>{''.join(bars)}</g>")
    for name, value in marks.items():
        if x.low <= value <= x.high:
            at = x.at(value)
            parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{y.start}"/>')
            parts.append(f'<text class="marked" x="{at + 4:.1f}" y="{TOP + 2}">{name}</text>')
    return _frame(x, y, "latency in ms (logarithmic)", "% of requests", "".join(parts), "Histogram of latency")


def heat_map(time_s: Floats, latency_ms: Floats, begins_s: dict[str, float]) -> str:
    """Requests over time and log latency; the darker, the more (square root). Bands that percentiles hide show here.

    ``begins_s`` says when each part of the run begins.
    """
    x, y = _x_axis(0.0, max(float(time_s.max()), 1e-3)), _y_axis(*_range(latency_ms), log=True)
    rows = np.geomspace(y.low, y.high, BANDS + 1)
    counts, times, _ = np.histogram2d(time_s, latency_ms, (np.linspace(x.low, x.high, COLUMNS + 1), rows))
    top = float(counts.max())
    parts = [
        f'<rect class="heat" x="{x.at(times[i]):.1f}" y="{y.at(rows[j + 1]):.1f}" '
        f'width="{x.at(times[i + 1]) - x.at(times[i]):.1f}" height="{y.at(rows[j]) - y.at(rows[j + 1]):.1f}" '
        f'opacity="{0.15 + 0.85 * math.sqrt(counts[i, j] / top):.2f}"><title>{int(counts[i, j])}</title></rect>'
        for i, j in zip(*np.nonzero(counts), strict=True)
    ]
    free = 0.0  # where the next name may begin
    for name, begin in begins_s.items():
        at = x.at(begin)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 12}" y2="{y.start}"/>')
        if at >= free:
            parts.append(f'<text x="{at + 4:.1f}" y="{TOP - 4}">{name}</text>')
            free = at + 8 * len(name)
    return _frame(
        x, y, "time since the run began in s", "latency in ms", "".join(parts), "Heat map of latency over time"
    )


def order_scatter(positions: Floats, latency_ms: Floats, refused: Floats, s0_ms: float) -> str:
    """Latency against the place in the pulse: a queue is a ramp, a free service a level band. Refusals on the floor."""
    high = max(float(latency_ms.max()) if len(latency_ms) else 0.0, s0_ms) * 1.1
    count = max([*positions.tolist(), *refused.tolist(), 1.0])
    x, y = _x_axis(0.0, count), _y_axis(0.0, high)
    at = y.at(s0_ms)
    parts = [
        f'<line class="mark" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>',
        f'<text class="marked" x="{WIDTH - RIGHT - 4}" y="{at - 4:.1f}" text-anchor="end">S0</text>',
    ]
    parts += [
        f'<circle class="dot" cx="{x.at(p):.1f}" cy="{y.at(v):.1f}" r="2.5"/>'
        for p, v in zip(positions, latency_ms, strict=True)
    ]
    parts += [_cross(x.at(p), y.start - 4) for p in refused]
    return _frame(x, y, "place in the pulse, by send", "latency in ms", "".join(parts), "Latency by order of sending")


def _cross(x: float, y: float) -> str:
    return f'<path class="cross" d="M{x - 3:.1f} {y - 3:.1f}l6 6m0-6l-6 6"/>'


def curve(sizes: Floats, lines: dict[str, Floats], s0_ms: float) -> str:
    """Latency against requests at once, both logarithmic, one line a quantile."""
    everything = np.concatenate([*lines.values(), np.array([s0_ms])])
    everything = everything[~np.isnan(everything)]
    x, y = (
        _x_axis(max(1.0, float(sizes.min())) / 1.1, float(sizes.max()) * 1.1, log=True, right=NAMES),
        _y_axis(*_range(everything), log=True),
    )
    at = y.at(s0_ms)
    mark = f'<line class="mark" x1="{LEFT}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>'
    drawn = _lines(x, y, {name: (sizes, values) for name, values in lines.items()}) + mark
    return _frame(x, y, "requests at once", "latency in ms", drawn, "Latency by size of pulse", sizes.tolist())


def shares(lines: dict[str, Line], x_label: str, y_label: str, x_ticks: list[float] | None = None) -> str:
    """Percentages, one line each: (x, percentage). Which is which, the page says beside it."""
    xs, ys = (np.concatenate([line[side] for line in lines.values()]) for side in (0, 1))
    room = (float(xs.max()) - float(xs.min())) / 20 or 0.5
    x = _x_axis(max(0.0, float(xs.min()) - room), float(xs.max()) + room)
    y = _y_axis(max(0.0, float(ys.min()) - 5), 101.0)
    drawn = _lines(x, y, lines, named=False)
    return _frame(x, y, x_label, y_label, drawn, f"{y_label} by {x_label}", x_ticks)


def _lines(x: Axis, y: Axis, lines: dict[str, Line], *, named: bool = True) -> str:
    """Every line with its dots, and its name, if asked for, to the right of its end, where names do not touch."""
    parts, ends = [], []
    for index, (name, (xs, ys)) in enumerate(lines.items()):
        kind = f"l{index % COLOURS}"
        points = [(x.at(a), y.at(b)) for a, b in zip(xs, ys, strict=True) if not math.isnan(b)]
        if not points:
            continue
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline class="line {kind}" points="{path}"/>')
        parts += [f'<circle class="{kind}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in points]
        if named:
            ends.append((points[-1][1], points[-1][0], name))
    above = -math.inf
    for end, start, name in sorted(ends):
        above = max(end, above + APART)
        parts.append(f'<text class="marked" x="{start + 9:.1f}" y="{above + 4:.1f}">{escape(name)}</text>')
    return "".join(parts)
