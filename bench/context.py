#!/usr/bin/env python3
"""One context load per request: prefill passes and their time for 1, 4 and 16 messages with the same token total.

The conversations are encoded by the model's own template and padded to exactly the same number of tokens. Rounds
alternate between them; medians. "shared" tokens were computed at start (the template's own beginning). Then what a
prompt gains that comes a second time: both times to its first token. Half a minute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from in_process import loaded, machine, options, show, write

from zerolayer.model.engine import Generation, StepPlan
from zerolayer.model.load import LoadedModel
from zerolayer.wire.schema import Message, Sampling

COLUMNS = {
    "messages": "messages",
    "tokens": "tokens",
    "shared": "shared:.0f",
    "passes": "passes:.0f",
    "encode ms": "encode_ms:.2f",
    "prefill ms": "prefill_ms:.2f",
    "to the first token ms": "first_ms:.2f",
}

AGAIN = {
    "prompt tokens": "tokens",
    "first time ms": "cold_ms:.2f",
    "again ms": "again_ms:.2f",
    "shared": "shared:.0f",
    "sooner by": "times:.1f",
}


def conversation(model: LoadedModel, count: int, tokens: int, mark: str) -> list[Message]:
    """``count`` messages, the last one the user's, that encode to exactly ``tokens`` tokens."""
    roles = ["system"] * (count % 2 == 0) + ["user", "assistant"] * count
    words = [[mark] for _ in range(count)]
    while True:
        messages = [Message(role, " ".join(said)) for role, said in zip(roles, words, strict=False)]
        missing = tokens - len(model.template.encode(messages))
        if missing == 0:
            return messages
        if missing < 0:
            raise SystemExit(f"{count} messages have more than {tokens} tokens; raise --tokens.")
        for at in range(missing):
            words[at % count].append("time")  # one token each


def load_context(model: LoadedModel, messages: Sequence[Message]) -> dict[str, Any]:
    """Encode, and prefill up to the first token."""
    engine, info = model.engine, model.engine.describe()
    started = time.monotonic_ns()
    ids = model.template.encode(messages)
    encoded = time.monotonic_ns()
    engine.open(0, Generation(ids, Sampling(temperature=0.0), 1, ignore_eos=True, keep=False))
    shared, passes = len(ids) - engine.prefill_left(0), 0
    while left := engine.prefill_left(0):
        engine.step(StepPlan((), 0, min(left, info.chunk_tokens)))
        passes += 1
    ended = time.monotonic_ns()
    engine.close(0)
    times = {"encode_ms": encoded - started, "prefill_ms": ended - encoded, "first_ms": ended - started}
    return {"shared": shared, "passes": passes} | {name: spent / 1e6 for name, spent in times.items()}


def first_token_ms(model: LoadedModel, ids: Sequence[int]) -> tuple[float, int]:
    """Milliseconds to the first token of a prompt that is then kept, and how many of its tokens were kept before."""
    engine, info = model.engine, model.engine.describe()
    started = time.monotonic_ns()
    engine.open(0, Generation(ids, Sampling(temperature=0.0), 1, ignore_eos=True))
    shared = len(ids) - engine.prefill_left(0)
    while left := engine.prefill_left(0):
        engine.step(StepPlan((), 0, min(left, info.chunk_tokens)))
    ended = time.monotonic_ns()
    engine.close(0)
    return (ended - started) / 1e6, shared


def repeated(model: LoadedModel, tokens: int, rounds: int) -> dict[str, Any]:
    """The same prompt twice, another one each round."""
    cold, again, shared = [], [], 0
    for number in range(rounds):
        ids = [100 + (number * 7919 + at * 104_729) % 20_000 for at in range(tokens)]
        cold.append(first_token_ms(model, ids)[0])
        taken, shared = first_token_ms(model, ids)
        again.append(taken)
    times = statistics.median(cold) / statistics.median(again)
    return {
        "tokens": tokens,
        "cold_ms": statistics.median(cold),
        "again_ms": statistics.median(again),
        "shared": shared,
        "times": times,
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--messages", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=21)
    given = parser.parse_args()
    before = machine()
    taken: dict[int, list[dict[str, Any]]] = {count: [] for count in given.messages}
    with loaded(slots="1", slot_tokens=str(given.tokens + 16)) as model:
        for number in range(given.rounds):
            for count, runs in taken.items():
                runs.append(load_context(model, conversation(model, count, given.tokens, str(number))))
        again = repeated(model, given.tokens, given.rounds)
    rows = [
        {"messages": count, "tokens": given.tokens}
        | {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for count, runs in taken.items()
    ]
    show(COLUMNS, rows)
    print()
    show(AGAIN, [again])
    write(given.json, "context", before, [*rows, again])


if __name__ == "__main__":
    main()
