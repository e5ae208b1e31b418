"""How many streams a service runs at once, seen from outside: from the first token of each to its end. Pure functions.

A service that runs all that it accepts shows as many at once as a pulse has. One of c slots never shows more than c,
and whoever comes (c + 1)-th begins when another ends, in whatever order it serves.
"""

from __future__ import annotations

import math

import numpy as np

from zerolayer.check.figures import BOOTSTRAP_SEED, is_stream, unloaded
from zerolayer.check.findings import Finding, Kind
from zerolayer.check.run_file import PULSE, Run
from zerolayer.check.statistics import Floats, bootstrap, median, median_of

ALIKE = 0.8  # of the pulses that show the same number at once
WAITING = 2  # streams at least that wait for a slot
JUMP = 0.25  # of S0, from the last stream that began at once to the next one
UNEVEN = 2.0  # times the pace at which those before it began: prompts that are read in turn keep theirs

Pulse = tuple[Floats, Floats]  # first token and end of each stream in ms, in the order in which they began


def waiting_streams(run: Run) -> Finding | None:
    """A queue for slots, in whatever order: fewer streams run at once than were accepted, and the rest waits an S0."""
    s0 = unloaded(run).value
    pulses = _pulses(run)
    if not pulses or math.isnan(s0):
        return None
    size = max(pulses)
    counts = [most_at_once(*pulse) for pulse in pulses[size]]
    slots = int(np.median(counts))
    if sum(count == slots for count in counts) < ALIKE * len(counts) or not _runs_smaller_ones(pulses, slots):
        return None
    waiting = [first for first, _ in pulses[size] if len(first) >= slots + WAITING]
    if len(waiting) < max(2.0, ALIKE * len(counts)):
        return None
    jump = float(np.median([first[slots] - first[slots - 1] for first in waiting]))
    pace = float(np.median([gap for first in waiting for gap in np.diff(first[:slots])])) if slots > 1 else 0.0
    effect = median(np.array([first[-1] - first[0] for first in waiting]))
    if jump < max(JUMP * s0, UNEVEN * pace) or effect.value < s0:
        return None
    served = float(np.median([len(first) for first in waiting]))
    seen = [np.array([float(count)]) for count in counts]
    return Finding(
        Kind.QUEUE,
        f"A queue that serves in no order: of {served:.0f} streams at once never more than {slots} ran, and the last "
        f"began {effect.value:.0f} ms after the first.",
        {"slots": bootstrap(seen, median_of, np.random.default_rng(BOOTSTRAP_SEED)), "effect_ms": effect},
    )


def most_at_once(first: Floats, end: Floats) -> int:
    """The largest number of streams between their first token and their end."""
    return max(int(np.count_nonzero((first <= at) & (end > at))) for at in first)


def _pulses(run: Run) -> dict[int, list[Pulse]]:
    """By size: the streams of each pulse that were served."""
    rows = run.rows(PULSE) & run.served & (run.first >= 0)
    if not is_stream(run):
        return {}
    found: dict[int, list[Pulse]] = {}
    for group in np.unique(run.group[rows]):
        mine = np.flatnonzero(rows & (run.group == group))
        mine = mine[np.argsort(run.first[mine], kind="stable")]
        found.setdefault(int(run.size[mine[0]]), []).append((run.first[mine] / 1000, run.end[mine] / 1000))
    return found


def _runs_smaller_ones(pulses: dict[int, list[Pulse]], slots: int) -> bool:
    """Whether pulses for which there are slots run all at once: else answers are too short to tell."""
    smaller = [pulse for size, group in pulses.items() if size <= slots for pulse in group]
    return bool(smaller) and all(most_at_once(*pulse) == len(pulse[0]) for pulse in smaller)
