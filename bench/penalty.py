#!/usr/bin/env python3
"""What the repetition penalty costs with each of its structures, and how often the Bloom filter is wrong.

Distinct random tokens are seen, then the penalty is applied and undone many times, alternating between the structures;
medians. One thread, the kernels' own code, no model.
"""

from __future__ import annotations

import math
import statistics

import numpy as np
from in_process import machine, options, show, write

from zerolayer.model import _native

BYTES = {"exact": lambda vocabulary: -(-vocabulary // 8), "bloom": lambda _: 4096}
COLUMNS = {
    "structure": "structure",
    "bytes a slot": "bytes:,",
    "distinct tokens": "distinct:,",
    "ns to see one": "see_ns:.1f",
    "us a pass": "pass_us:.1f",
    "wrongly penalised": "wrong:.1f",
    "false positives": "rate:.4%",
    "ideal hashes": "ideal:.4%",
}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--vocabulary", type=int, default=49_152)
    parser.add_argument("--distinct", type=int, nargs="+", default=[256, 1024, 2048])
    parser.add_argument("--draws", type=int, default=20, help="random token sets")
    parser.add_argument("--rounds", type=int, default=200, help="passes timed for each")
    given = parser.parse_args()
    before = machine()
    rows = []
    for distinct in given.distinct:
        taken: dict[str, list[tuple[float, float, int]]] = {name: [] for name in BYTES}
        for draw in range(given.draws):
            random = np.random.default_rng((distinct, draw))
            seen = random.choice(given.vocabulary, distinct, replace=False).astype(np.int32)
            logits = random.normal(size=given.vocabulary).astype(np.float32)
            for name in BYTES:
                taken[name].append(_native.penalise(logits.copy(), seen, 1.1, name == "bloom", given.rounds))
        for name, size in BYTES.items():
            wrong = statistics.mean(count - distinct for *_, count in taken[name])
            rows.append(
                {
                    "structure": name,
                    "bytes": size(given.vocabulary),
                    "distinct": distinct,
                    "see_ns": statistics.median(see for see, *_ in taken[name]),
                    "pass_us": statistics.median(each for _, each, _ in taken[name]) / 1e3,
                    "wrong": wrong,
                    "rate": wrong / (given.vocabulary - distinct),
                    "ideal": (1 - math.exp(-4 * distinct / 32_768)) ** 4 if name == "bloom" else 0.0,
                }
            )
    show(COLUMNS, rows)
    write(given.json, "penalty", before, rows)


if __name__ == "__main__":
    main()
