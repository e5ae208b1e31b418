#!/usr/bin/env python3
"""The README's picture: a request's path elsewhere and here, with measured figures.

    python bench/picture.py

Writes docs/path.svg from bench/results; every figure in it is one of theirs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PICTURE = ROOT / "docs" / "path.svg"
WIDTH, HEIGHT = 860, 332
BOX, GAP, TOP, UNDER = 176, 28, 56, 214  # width of a layer and space between; y of either path
LEFT = 118
CROWD, DOOR = "closed 32", "HTTP/1.1, 16 connections"
NOISE_MS = 0.1
_STYLE = """
svg{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;--paper:#fff;--ink:#1a1f24;--soft:#5c6670;--rule:#cfd6dd;
--bad:#b3261e;--pale:#fdf1ef;--good:#1a7f37;--line:#1f6feb}
@media(prefers-color-scheme:dark){svg{--paper:#0f1317;--ink:#e6eaee;--soft:#97a2ad;--rule:#3a434c;--bad:#ff8a80;
--pale:#2a1a19;--good:#6fdd8b;--line:#6cb0ff}}
.paper{fill:var(--paper)}text{fill:var(--ink)}.soft{fill:var(--soft)}.name{font-weight:650;font-size:15px}
.end{font-weight:600}.layer{fill:var(--pale);stroke:var(--bad)}.ghost{fill:none;stroke:var(--rule);stroke-dasharray:5 4}
.cost{fill:var(--bad);font-weight:650;font-size:16px}.kept{fill:var(--good);font-weight:650;font-size:16px}
.way{stroke:var(--soft);stroke-width:1.5;fill:none}.own{stroke:var(--line);stroke-width:3;fill:none}
.tip{fill:var(--soft)}.owntip{fill:var(--line)}
"""


@dataclass(frozen=True)
class Layer:
    """What stands between client and model: its name, what it is, what it costs elsewhere, and what is left of it."""

    name: str
    what: str
    cost: str
    peer: str
    left: str
    instead: str


def layers() -> list[Layer]:
    """The three, with the figures of the kept results."""
    chains = {row["chain"]: row["p50_ms"] for row in _result("gateway")["rows"]}
    alone = chains["engine alone"]
    inside = _result("guard")["us"]["all of the cached path together (goal 6)"]
    first = {row["server"]: row["ttft_p50_ms"] for row in _result("engine")["peers"]["medians"] if row["run"] == CROWD}
    peer = min((name for name in first if not name.startswith("zerolayer")), key=first.__getitem__)
    heavy = next(row for row in _result("zero_queue")["rows"] if row["run"] == "poisson 1.5")
    front = _result("front")["rows"]
    door = {row["server"]: row["value"] for row in front if row["what"] == DOOR}
    glue = next(row["value"] for row in front if row["what"].startswith("glue") and "usual" in row["what"])
    return [
        Layer(
            "gateway",
            "proxy, keys, limits, logs",
            f"+{chains['nginx + LiteLLM + Redis'] - alone:.0f} ms",
            "nginx + LiteLLM + Redis",
            _latency_added(chains["zerolayer"] - alone),
            f"keys, limits, ledger: {inside:.1f} us",
        ),
        Layer(
            "queue",
            "a line that grows",
            f"{first[peer] / 1000:.2g} s to first token",
            f"{peer.partition(',')[0]}, 32 clients",
            f"{first['zerolayer exact'] / 1000:.2g} s to first token",
            f"busy: {heavy['of them served']} of {heavy['retries within the window']} bookings kept",
        ),
        Layer(
            "glue",
            "JSON trees, handlers",
            f"{door['fastapi']:.0f} us of CPU",
            "FastAPI on uvicorn",
            f"{door['zerolayer']:.0f} us of CPU",
            f"{glue:.1f} % of a request is glue",
        ),
    ]


def _latency_added(ms: float) -> str:
    """Less than a tenth of a millisecond is below what that bench can tell from noise."""
    return f"+{ms:.1f} ms" if ms > NOISE_MS else "+0.0 ms"


def _result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def picture() -> str:
    """The whole file."""
    right = LEFT + 3 * BOX + 3 * GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>A request passes a gateway, a queue and glue elsewhere; here it meets the model's arithmetic</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
    ]
    for y, name in ((TOP, "elsewhere"), (UNDER, "zerolayer")):
        parts.append(f'<text class="soft" x="20" y="{y - 18}">{name}</text>')
        parts.append(f'<text class="end" x="20" y="{y + 38}">client</text>')
        parts.append(f'<text class="end" x="{right + 6}" y="{y + 38}">arithmetic</text>')
    parts.append(f'<path class="way" d="M70 {TOP + 33}H{right - 8}"/>')
    parts.append(_tip("tip", right, TOP + 33))
    for place, layer in enumerate(layers()):
        parts += _layer(layer, LEFT + place * (BOX + GAP))
    parts.append(f'<path class="own" d="M70 {UNDER + 33}H{right - 8}"/>')
    parts.append(_tip("owntip", right, UNDER + 33))
    return "\n".join([*parts, "</svg>", ""])


def _layer(layer: Layer, x: int) -> list[str]:
    middle = x + BOX / 2
    rows = (
        ("name", TOP + 27, layer.name),
        ("soft", TOP + 47, layer.what),
        ("cost", TOP + 92, layer.cost),
        ("soft", TOP + 111, layer.peer),
        ("kept", UNDER + 86, layer.left),
        ("soft", UNDER + 105, layer.instead),
    )
    return [
        f'<rect class="layer" x="{x}" y="{TOP}" width="{BOX}" height="66" rx="6"/>',
        f'<rect class="ghost" x="{x}" y="{UNDER}" width="{BOX}" height="66" rx="6"/>',
        *(f'<text class="{kind}" x="{middle:g}" y="{y}" text-anchor="middle">{text}</text>' for kind, y, text in rows),
    ]


def _tip(kind: str, x: int, y: int) -> str:
    return f'<path class="{kind}" d="M{x} {y}l-11 -5v10z"/>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
