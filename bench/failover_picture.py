"""The timeline of ``failover.py`` as SVG: one row of bars for each way, light and dark by the reader's setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH, ROW, LEFT, TOP = 760, 96, 90, 26
_STYLE = """
  svg { font: 12px system-ui, sans-serif; background: #fff; color: #222 }
  text { fill: currentColor } .ok { fill: #2b6cb0 } .cut { fill: #d69e2e } .failed { fill: #c53030 }
  line { stroke: currentColor; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) { svg { background: #161b22; color: #ddd } .ok { fill: #63b3ed }
    .cut { fill: #f6e05e } .failed { fill: #fc8181 } }
"""


def timeline(ways: Mapping[str, Sequence[Mapping[str, int]]], bin_s: float, kill_s: float) -> str:
    """Calls by time and outcome: answered upwards, cut and failed downwards. ``kill_s`` is marked."""
    most = max((sum(bar.values()) for bars in ways.values() for bar in bars), default=1) or 1
    count = max((len(bars) for bars in ways.values()), default=1)
    step = (WIDTH - LEFT - 10) / count
    height = TOP + len(ways) * ROW + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Calls each 0.1 s while one node of several is killed</title>",
        f"<style>{_STYLE}</style>",
        f'<text x="{LEFT}" y="16">answered (up), cut or failed (down), each {bin_s:g} s; the line: a kill</text>',
    ]
    for row, (way, bars) in enumerate(ways.items()):
        base = TOP + row * ROW + ROW * 2 / 3
        parts.append(f'<text x="8" y="{base:.0f}">{way}</text>')
        for at, bar in enumerate(bars):
            parts += _bars(LEFT + at * step, base, step, bar, ROW * 0.6 / most)
    across = LEFT + kill_s / bin_s * step
    foot = TOP + len(ways) * ROW
    parts.append(f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{TOP}" y2="{foot}"/>')
    for second in range(0, int(count * bin_s) + 1, 2):
        parts.append(f'<text x="{LEFT + second / bin_s * step:.0f}" y="{foot + 16}">{second} s</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bars(x: float, base: float, step: float, bar: Mapping[str, int], scale: float) -> list[str]:
    out, below = [], base + 1
    for how in ("ok", "cut", "failed"):
        tall = bar.get(how, 0) * scale
        if not tall:
            continue
        y = base - tall if how == "ok" else below
        out.append(f'<rect class="{how}" x="{x:.1f}" y="{y:.1f}" width="{step * 0.85:.2f}" height="{tall:.1f}"/>')
        if how != "ok":
            below += tall
    return out
