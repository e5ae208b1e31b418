"""What a finding is, and which exit code it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from zerolayer.check.statistics import Estimate

PASS, FAILED, USAGE, SLO_MISSED = 0, 1, 2, 4
HIDDEN_QUEUE, DISHONEST_RETRY, BUFFERED, OTHER_WAIT = 10, 11, 12, 13
INVALID = 20


class Kind(StrEnum):
    """Each disease, by the name that reports print."""

    QUEUE = "hidden queue"
    SHAPER = "rate shaper"
    DISHONEST = "dishonest retry"
    BUFFER = "buffered stream"
    SHARING = "processor sharing"
    TICK = "batch tick"
    FIRST_ARRIVAL = "first-arrival wait"
    STALL = "stall"
    LEAK = "slot leak"
    MODE = "second mode"
    SERIAL = "serial prefill"
    LATE_PROMISE = "late promise"
    NO_PROMISE = "refusal without a time"
    FAILURES = "failures"


EXIT_CODES = {
    Kind.QUEUE: HIDDEN_QUEUE,
    Kind.SHAPER: HIDDEN_QUEUE,
    Kind.DISHONEST: DISHONEST_RETRY,
    Kind.BUFFER: BUFFERED,
    Kind.SHARING: OTHER_WAIT,
    Kind.TICK: OTHER_WAIT,
    Kind.FIRST_ARRIVAL: OTHER_WAIT,
    Kind.STALL: OTHER_WAIT,
    Kind.LEAK: OTHER_WAIT,
    Kind.MODE: OTHER_WAIT,
    Kind.SERIAL: PASS,
    Kind.LATE_PROMISE: PASS,
    Kind.NO_PROMISE: PASS,
    Kind.FAILURES: PASS,
}


@dataclass(frozen=True)
class Finding:
    """One conclusion: its sentence, and the figures it rests on (name with unit -> estimate)."""

    kind: Kind
    text: str
    figures: dict[str, Estimate]

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]


def exit_code(findings: list[Finding]) -> int:
    """The gravest: the lowest code that is not 0."""
    return min((finding.exit_code for finding in findings if finding.exit_code), default=PASS)
