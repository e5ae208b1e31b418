#!/usr/bin/env python3
"""What holding answers to a grammar costs: the time of a decode step with and without, all slots decoding.

One engine. Rounds alternate between free text and the schemas, so that a machine that changes speed changes it for
all; medians of the steps of all rounds. "over free" is masks, the sampler's use of them, and the states' next token.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from in_process import decode_ns, loaded, machine, options, show, some_ids, step_row, write

from zerolayer.model.engine import Generation
from zerolayer.text.grammar import Grammar
from zerolayer.wire.schema import OutputFormat, Request, Route, Sampling

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "email": {"type": "string", "pattern": "^[a-z]+@[a-z]+\\.org$"},
        "role": {"enum": ["admin", "editor", "reader"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4},
    },
    "required": ["name", "age", "email", "role", "tags"],
    "additionalProperties": False,
}
FREE = "free text"
# Long enough that no answer ends before its last timed step.
SCHEMAS: dict[str, dict[str, Any]] = {
    "records": {"type": "array", "items": PERSON, "minItems": 1000},
    "long texts": {"type": "array", "items": {"type": "string", "minLength": 400}, "minItems": 1000},
    "any JSON": {"type": "array", "minItems": 1000},
    "numbers": {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 1}, "minItems": 1000},
}
COLUMNS = {
    "slots": "slots",
    "answers": "answers",
    "step p50 ms": "p50_ms:.3f",
    "p99 ms": "p99_ms:.3f",
    "over free us a slot": "over_us:+.1f",
    "over free": "share:+.2%",
}


def generation_of(grammar: Grammar | None, prompt: int, steps: int) -> Callable[[int], Generation]:
    """What each slot is asked for."""

    def of(slot: int) -> Generation:
        ids, sampling = some_ids(slot, prompt), Sampling(0.7, seed=slot)
        return Generation(ids, sampling, steps + 2, ignore_eos=True, keep=False, grammar=grammar)

    return of


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=128, help="tokens in each slot's context when decoding begins")
    parser.add_argument("--steps", type=int, default=48, help="timed in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="one thread and its CPU time, for a busy machine")
    given = parser.parse_args()
    clock_ns, threads = (time.process_time_ns, "1") if given.cpu else (time.monotonic_ns, "0")
    print("about two minutes on a machine with nothing else to do", flush=True)
    before = machine()
    rows = []
    room = str(given.prompt + given.steps + 16)
    with loaded(slots=str(max(given.slots)), slot_tokens=room, threads=threads) as model:
        grammars: dict[str, Grammar | None] = {FREE: None}
        for name, schema in SCHEMAS.items():
            request = Request(Route.CHAT, "", output=OutputFormat(json.dumps(schema).encode()))
            grammars[name] = model.grammars.of(request)
        for slots in given.slots:
            taken: dict[str, list[int]] = {name: [] for name in grammars}
            for turn in range(given.rounds):
                print(f"{slots} slots, round {turn + 1} of {given.rounds}", flush=True)
                for name, grammar in grammars.items():
                    asked = generation_of(grammar, given.prompt, given.steps)
                    taken[name] += decode_ns(model.engine, slots, asked, given.steps, clock_ns)
            free = statistics.median(taken[FREE])
            for name, times in taken.items():
                share = (statistics.median(times) - free) / free
                rows.append(step_row(slots, times, free) | {"answers": name, "share": share})
    show(COLUMNS, rows)
    write(given.json, "masks", before, rows)


if __name__ == "__main__":
    main()
