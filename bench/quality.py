#!/usr/bin/env python3
"""What the engine's arithmetic costs in quality: its logits against the float32 reference of the same GGUF file.

Every text is cut into chunks, each run from an empty context, teacher forced. At each position, with p the reference's
distribution and q the engine's: KL(p || q) in nats, and whether both have the same likeliest token. The perplexity
ratio is exp of the difference of the mean negative log likelihoods of the text itself.

    python bench/quality.py                                   the bundled model on tests/data/prose.txt
    python bench/quality.py --model x.gguf --text a.txt b.txt --json quality.json

The reference (tests/reference/llama.py) shares nothing with the engine; it needs the packages of the extra `test`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import msgspec  # noqa: E402 - the reference is found through the path above
import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from reference.llama import ReferenceModel, log_softmax  # noqa: E402
from zerolayer.contract import Contract, Model, model_path  # noqa: E402
from zerolayer.model.engine_options import EngineOptions  # noqa: E402
from zerolayer.model.machine import Machine  # noqa: E402
from zerolayer.model.native_engine import EXACT, NativeEngine  # noqa: E402
from zerolayer.model.source import open_source  # noqa: E402
from zerolayer.model.weights import Weights  # noqa: E402

PROSE = ROOT / "tests" / "data" / "prose.txt"
SHORTEST = 64  # tokens; what is left of a text behind its last whole chunk counts from here on
ROWS = 64  # distributions at a time: a large vocabulary in float64 is half a megabyte each

# The engine's arithmetics: its options by name of the mode.
MODES: dict[str, dict[str, Any]] = {
    "int8": {"exact": False},
    "int8-coarse": {"exact": False, "fine": False},  # without fine inputs: what they are worth
    "exact": {"exact": True},
}

Logits = Callable[[Sequence[int]], NDArray[np.float32]]


@dataclass
class Score:
    """Sums over the positions of some text; ``named`` counts positions whose next token the text names."""

    positions: int = 0
    named: int = 0
    divergence: float = 0.0
    agreed: int = 0
    reference_loss: float = 0.0
    engine_loss: float = 0.0

    def add(self, ids: Sequence[int], want: NDArray[np.float32], got: NDArray[np.float32]) -> None:
        """Take in one chunk: its ids (n), and both logits (n, vocabulary)."""
        self.positions += len(ids)
        self.named += len(ids) - 1
        self.agreed += int((want.argmax(axis=1) == got.argmax(axis=1)).sum())
        for start in range(0, len(ids), ROWS):
            p, q = log_softmax(want[start : start + ROWS]), log_softmax(got[start : start + ROWS])
            self.divergence += float((np.exp(p) * (p - q)).sum())
            following = np.asarray(ids[start + 1 : start + ROWS + 1])
            rows = np.arange(len(following))
            self.reference_loss -= float(p[rows, following].sum())
            self.engine_loss -= float(q[rows, following].sum())

    def merge(self, other: Score) -> None:
        """Take in all of another score."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def figures(self) -> dict[str, float]:
        """What the table shows. Perplexities are those of the text."""
        return {
            "tokens": self.positions,
            "kl": self.divergence / self.positions,
            "top1": self.agreed / self.positions,
            "perplexity_reference": float(np.exp(self.reference_loss / self.named)),
            "perplexity_engine": float(np.exp(self.engine_loss / self.named)),
            "perplexity_ratio": float(np.exp((self.engine_loss - self.reference_loss) / self.named)),
        }


def chunks_of(ids: Sequence[int], length: int) -> list[Sequence[int]]:
    """Whole chunks of ``length`` tokens, and the rest if it is long enough to count."""
    cut = [ids[start : start + length] for start in range(0, len(ids), length)]
    return [chunk for chunk in cut if len(chunk) >= min(SHORTEST, length)]


def score(reference: Logits, engines: dict[str, Logits], chunks: Iterable[Sequence[int]]) -> dict[str, Score]:
    """Every engine's score over ``chunks``; the reference runs once for all."""
    scores = {mode: Score() for mode in engines}
    for ids in chunks:
        want = reference(ids)
        for mode, logits in engines.items():
            scores[mode].add(ids, want, logits(ids))
    return scores


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of figures as text."""
    lines = [f"{'mode':12} {'text':24} {'tokens':>7} {'KL':>9} {'top-1':>8} {'ppl ref':>9} {'ppl':>9} {'ratio':>8}"]
    lines += [
        f"{row['mode']:12} {row['text'][:24]:24} {row['tokens']:7d} {row['kl']:9.6f} {row['top1']:8.2%} "
        f"{row['perplexity_reference']:9.4f} {row['perplexity_engine']:9.4f} {row['perplexity_ratio']:8.5f}"
        for row in rows
    ]
    return "\n".join(lines)


def modes_of(weights: Weights) -> list[str]:
    """What the file's storage types allow."""
    exact = all(info.type in EXACT for info in weights.tensors.values() if len(info.shape) == 2)
    return ["int8", "exact"] if exact else ["int8"]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The whole run: per text and mode, and over all texts."""
    path = model_path(Contract(model=Model(path=options.model)))
    source = open_source(path)
    encode = source.build_encoder().encode
    sized = EngineOptions(slots=32, slot_tokens=options.chunk, chunk_tokens=32, threads=options.threads)
    modes = options.mode or modes_of(source.weights)
    shaped = {mode: msgspec.structs.replace(sized, **MODES[mode]) for mode in modes}
    engines = {mode: NativeEngine.load(source.weights, source.config, each) for mode, each in shaped.items()}
    reference = ReferenceModel.load(path)
    rows: list[dict[str, Any]] = []
    totals = {mode: Score() for mode in engines}
    for text in options.text:
        left = options.tokens - next(iter(totals.values())).positions
        ids = encode(text.read_text(errors="replace"))[: min(left, options.tokens_per_text)]
        started = time.monotonic()
        by_mode = {mode: engine.logits for mode, engine in engines.items()}
        for mode, found in score(reference.logits, by_mode, chunks_of(ids, options.chunk)).items():
            if found.positions:
                rows.append({"mode": mode, "text": text.name, **found.figures()})
                totals[mode].merge(found)
        print(f"{text.name}: {len(ids)} tokens in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    rows += [{"mode": mode, "text": "all", **total.figures()} for mode, total in totals.items() if total.positions]
    kernels = next(iter(engines.values())).describe().kernels
    return {
        "model": path.name,
        "chunk_tokens": options.chunk,
        "kernels": kernels,
        "machine": platform.processor() or platform.machine(),
        "load_average": os.getloadavg()[0],
        "rows": rows,
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="GGUF file or bundled model")
    parser.add_argument("--text", type=Path, nargs="+", default=[PROSE], help="text files, one after the other")
    parser.add_argument("--chunk", type=int, default=512, help="tokens that are run together (default 512)")
    parser.add_argument("--tokens", type=int, default=1 << 40, help="stop after this many in all")
    parser.add_argument("--tokens-per-text", type=int, default=1 << 40, help="the most that one text counts")
    parser.add_argument("--threads", type=int, default=Machine.read().threads(0)[0], help="threads of the engine")
    parser.add_argument("--mode", nargs="+", choices=sorted(MODES), help="default: all that the file allows")
    parser.add_argument("--json", "--json-out", type=Path, help="write the figures as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print one table."""
    options = parse(arguments)
    result = measure(options)
    print(table(result["rows"]))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
