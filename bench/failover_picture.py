"""The timelines of ``failover.py`` as SVG: a row for each fault, a column for each way, light or dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

CELL_W, CELL_H, LEFT, TOP, GAP = 250, 104, 132, 64, 14
_STYLE = """
  svg { font: 12px system-ui, sans-serif; background: #fff; color: #1f2328 }
  text { fill: currentColor } .small { font-size: 11px } .head { font-weight: 600; font-size: 13px }
  .ok { fill: #2b6cb0 } .cut { fill: #b7791f } .failed { fill: #c53030 }
  .axis { stroke: currentColor; stroke-opacity: 0.35 } .fault { stroke: currentColor; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) { svg { background: #0d1117; color: #e6edf3 } .ok { fill: #63b3ed }
    .cut { fill: #ecc94b } .failed { fill: #fc8181 } }
"""
_KINDS = {"ok": "ok", "cut": "cut", "damaged": "cut", "failed": "failed", "wrong": "failed"}
_LEGEND = (("ok", "answered"), ("cut", "cut or damaged, and reported as such"), ("failed", "failed"))


@dataclass(frozen=True)
class Cell:
    """One run: calls by time and outcome, in bins; from when to when the fault lasted, in seconds; its figures."""

    bins: Sequence[Mapping[str, int]]
    fault_s: float
    over_s: float
    figures: str


def timeline(rows: Mapping[str, Mapping[str, Cell]], ways: Sequence[str], bin_s: float, title: str) -> str:
    """``rows``: fault -> way -> run. Bars go up where calls were answered, and down where they were not."""
    width, height = LEFT + len(ways) * (CELL_W + GAP), TOP + len(rows) * (CELL_H + GAP) + 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<text x="8" y="18">{escape(title)}</text>',
        *_legend(),
    ]
    for column, way in enumerate(ways):
        parts.append(f'<text class="head" x="{LEFT + column * (CELL_W + GAP)}" y="{TOP - 8}">{escape(way)}</text>')
    for number, (fault, cells) in enumerate(rows.items()):
        top = TOP + number * (CELL_H + GAP)
        seconds = max(len(cell.bins) for cell in cells.values()) * bin_s
        most = max(sum(bar.values()) for cell in cells.values() for bar in cell.bins) or 1
        parts += [
            f'<text class="small" x="8" y="{top + 34 + 15 * line}">{escape(text)}</text>'
            for line, text in enumerate(fault.split("\n"))
        ]
        for column, way in enumerate(ways):
            if way in cells:
                parts += _cell(cells[way], LEFT + column * (CELL_W + GAP), top, bin_s, seconds, most)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    parts, x = [], 8
    for kind, text in _LEGEND:
        parts.append(f'<rect class="{kind}" x="{x}" y="27" width="10" height="10"/>')
        parts.append(f'<text class="small" x="{x + 15}" y="36">{text}</text>')
        x += 40 + 6 * len(text)
    parts.append(f'<text class="small" x="{x}" y="36">dashed: the fault begins, and ends</text>')
    return parts


def _cell(cell: Cell, left: float, top: float, bin_s: float, seconds: float, most: int) -> list[str]:
    base, across = top + CELL_H - 30, CELL_W / seconds
    up, down = (CELL_H - 50) / most, 26 / most
    parts = [f'<text class="small" x="{left}" y="{top + 12}">{escape(cell.figures)}</text>']
    for at, bar in enumerate(cell.bins):
        x, below = left + at * bin_s * across, base + 1
        for how, kind in _KINDS.items():
            if not (count := bar.get(how, 0)):
                continue
            tall = count * up if kind == "ok" else max(4.0, count * down)  # one of a thousand is to be seen
            y = base - tall if kind == "ok" else below
            size = f'width="{bin_s * across * 0.9:.2f}" height="{tall:.1f}"'
            parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>')
            below += 0 if kind == "ok" else tall
    parts.append(f'<line class="axis" x1="{left}" x2="{left + CELL_W}" y1="{base + 0.5}" y2="{base + 0.5}"/>')
    for moment in sorted({cell.fault_s, cell.over_s}):
        x = left + moment * across
        parts.append(f'<line class="fault" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 18}" y2="{base + 20}"/>')
    labels = [(left + second * across, f"{second} s") for second in range(0, int(seconds - 1), 5)]
    return parts + [f'<text class="small" x="{x:.0f}" y="{base + 28}">{text}</text>' for x, text in labels]
