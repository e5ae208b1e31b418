#!/usr/bin/env python3
"""Hit rates of the prefix cache's policy and of LRU on a trace in Mooncake's format, for several cache sizes.

    python bench/prefix_policy.py conversation_trace.jsonl

A line of the trace is a request; ``hash_ids`` name the 512-token blocks of its prompt, equal ids for equal prefixes
(https://github.com/kvcache-ai/Mooncake, FAST25-release/traces). Requests run one after the other, in the trace's
order; each is looked up and then offered to the cache, as the engine does. A block of the trace stands for one block of
the cache here: that scales sizes and priorities alike and leaves every decision as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from in_process import machine, options, show, write

from zerolayer.model.prefix_cache import BLOCK, Policy, PrefixCache

TRACE_BLOCK = 512
POLICIES: tuple[Policy, ...] = ("saves-least", "lru")
COLUMNS = {
    "trace": "trace",
    "entries": "entries:,",
    "tokens an entry": "entry_tokens:,",
    "saves least": "saves-least:.2%",
    "LRU": "lru:.2%",
    "ratio": "ratio:.3f",
    "no limit": "unlimited:.2%",
}


def prompts(path: Path) -> list[list[int]]:
    """The prompts of a trace as tokens: each block's id, once for each token of a block of the cache."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [[block for block in line["hash_ids"] for _ in range(BLOCK)] for line in lines]


def hit_rate(trace: Sequence[list[int]], entries: int, entry_tokens: int, policy: Policy) -> float:
    """Tokens found over tokens asked for."""
    cache = PrefixCache(entries=entries, entry_tokens=entry_tokens * BLOCK // TRACE_BLOCK, policy=policy)
    for prompt in trace:
        hit = cache.attach(prompt)
        cache.admit(prompt)
        if hit is not None:
            cache.detach(hit)
    return cache.hits / cache.queries


def unlimited(trace: Sequence[list[int]], entry_tokens: int) -> float:
    """The same with an entry for every prefix."""
    seen: set[tuple[int, ...]] = set()
    found = asked = 0
    for prompt in trace:
        blocks = tuple(prompt[::BLOCK])[: entry_tokens // TRACE_BLOCK]
        asked += len(prompt)
        prefixes = [blocks[:end] for end in range(1, len(blocks) + 1)]
        most = (len(prompt) - 1) // BLOCK  # one token is always left to compute
        found += BLOCK * sum(prefix in seen for prefix in prefixes[:most])
        seen.update(prefixes)
    return found / asked


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("trace", type=Path, nargs="+")
    parser.add_argument("--entries", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--entry-tokens", type=int, nargs="+", default=[512, 2048, 8192], help="multiples of 512")
    parser.add_argument("--requests", type=int, help="only the first so many")
    given = parser.parse_args()
    if any(tokens % TRACE_BLOCK for tokens in given.entry_tokens):
        parser.error(f"--entry-tokens takes multiples of {TRACE_BLOCK}")
    before = machine()
    rows = []
    for path in given.trace:
        trace = prompts(path)[: given.requests]
        for entry_tokens in given.entry_tokens:
            most = unlimited(trace, entry_tokens)
            for entries in given.entries:
                rates = {policy: hit_rate(trace, entries, entry_tokens, policy) for policy in POLICIES}
                row = {"trace": path.stem, "entries": entries, "entry_tokens": entry_tokens, "unlimited": most}
                ratio = rates["saves-least"] / rates["lru"] if rates["lru"] else float("nan")
                rows.append(row | rates | {"ratio": ratio})
    show(COLUMNS, rows)
    write(given.json, "prefix_policy", before, rows)


if __name__ == "__main__":
    main()
