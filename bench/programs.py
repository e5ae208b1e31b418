#!/usr/bin/env python3
"""What preparing programs buys: the time of a decode step under each program's parameters, at 1, 8 and 32 slots.

One engine, all slots decoding at the same depth. Rounds alternate between the programs, so that a machine that
changes speed changes it for all; medians of the steps of all rounds. "over greedy" is what sampling adds, per slot.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from in_process import decode_ns, loaded, machine, options, show, some_ids, step_row, write

from zerolayer.model.engine import Generation
from zerolayer.model.program import FULL, GREEDY, PLAIN, Named, Programs
from zerolayer.wire.schema import Sampling

NAMED = Named("named", 0.7, 0.9, 0, 1.0)
PENALISED = Named("named, penalty", 0.7, 0.9, 0, 1.1)
PROGRAMS = Programs([NAMED, PENALISED])
# The fallback with what only it serves.
FULLEST = Sampling(
    0.7, top_p=0.9, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1, top_logprobs=5
)
RUNS = {name: PROGRAMS.sampling(name) for name in (GREEDY, PLAIN, NAMED.name, PENALISED.name)} | {FULL: FULLEST}
COLUMNS = {
    "slots": "slots",
    "program": "program",
    "step p50 ms": "p50_ms:.3f",
    "p99 ms": "p99_ms:.3f",
    "over greedy us a slot": "over_us:+.1f",
    "share of the step": "share:.2%",
}


def generation_of(sampling: Sampling, prompt: int, steps: int) -> Callable[[int], Generation]:
    """What each slot is asked for."""
    return lambda slot: Generation(some_ids(slot, prompt), sampling, steps + 2, ignore_eos=True, keep=False)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt", type=int, default=128, help="tokens in each slot's context when decoding begins")
    parser.add_argument("--steps", type=int, default=32, help="timed in each round")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    before = machine()
    rows = []
    assert all(PROGRAMS.of(sampling) == name for name, sampling in RUNS.items())
    room = given.prompt + given.steps + 16
    with loaded(slots=str(max(given.slots)), slot_tokens=str(room)) as model:
        for slots in given.slots:
            taken: dict[str, list[int]] = {name: [] for name in RUNS}
            for _ in range(given.rounds):
                for name, sampling in RUNS.items():
                    asked = generation_of(sampling, given.prompt, given.steps)
                    taken[name] += decode_ns(model.engine, slots, asked, given.steps)
            greedy = statistics.median(taken[GREEDY])
            for name, times in taken.items():
                median = statistics.median(times)
                share = (median - greedy) / median
                rows.append(step_row(slots, times, greedy) | {"program": name, "share": share})
    show(COLUMNS, rows)
    write(given.json, "programs", before, rows)


if __name__ == "__main__":
    main()
