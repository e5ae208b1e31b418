"""The last minute of a service, second by second, and its slots at this moment: what the live page shows.

Nothing is counted for it on a request's path. Once a second the totals that exist anyway are copied into a ring of 61;
the minute is the difference between its two ends, and a column of the heat map that between two neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import msgspec

from zerolayer.observe.stages import STAGE_NAMES

VERSION: Final = 1
SECONDS: Final = 60
_NS_PER_US: Final = 1000
_NS_PER_S: Final = 1_000_000_000
_DUE_NS: Final = 950_000_000  # sweeps are a few a second; a sample is taken at the first one that is about a second on


class SlotView(msgspec.Struct, frozen=True, array_like=True):
    """One slot, in milliseconds from now. ``state`` is ``free``, ``running``, or ``changing`` (claimed or ending)."""

    state: str
    since_ms: int = 0  # arrival of its request, negative
    end_ms: int = 0  # bound of its end
    due_ms: int = 0  # its deadline


class BookingView(msgspec.Struct, frozen=True, array_like=True):
    """A promised start, in milliseconds from now. ``here``: its client is being held."""

    slot: int
    start_ms: int
    end_ms: int
    here: bool
    soft: bool


class Moment(msgspec.Struct, frozen=True):
    """The slots now. ``feasible``: every promise can be kept as things stand."""

    slots: list[SlotView]
    bookings: list[BookingView]
    feasible: bool
    running: int
    free: int


class Totals(msgspec.Struct, frozen=True):
    """What has been counted since the start. Times in nanoseconds, histograms as counts by bucket."""

    stage_ns: tuple[int, ...]
    histograms: Mapping[str, tuple[int, ...]]
    finished: Mapping[str, int]
    refused: Mapping[str, int]
    steps: Mapping[str, int]
    tokens: int
    bookings: Mapping[str, int]
    deadlines: Mapping[str, int]
    abandoned: Mapping[str, int]
    busy_ns: int = 0
    arithmetic_ns: int = 0
    tenants: Mapping[str, int] = {}  # core-nanoseconds by who is charged


class Minute(msgspec.Struct, frozen=True):
    """What happened in the last ``seconds``. ``wall_us`` sums to them, ``stages_us`` to the time of all requests."""

    seconds: float
    wall_us: dict[str, int]
    stages_us: dict[str, int]
    histograms: dict[str, list[int]]
    finished: dict[str, int]
    refused: dict[str, int]
    steps: dict[str, int]
    tokens: int
    bookings: dict[str, int]
    deadlines: dict[str, int]
    abandoned: dict[str, int]
    tenants_us: dict[str, int]  # of all cores


class Service(msgspec.Struct, frozen=True):
    """What does not change. ``bounds_s`` are the upper bounds of the histograms' buckets, the last one open."""

    version: int
    model: str
    release: str
    engine: str
    slots: int
    slot_tokens: int
    fallback: str  # the program whose steps are no hits
    bounds_s: Mapping[str, tuple[float, ...]]


class LiveRecord:
    """The ring. One writer, the event loop; its size depends on nothing that a client sends."""

    def __init__(self) -> None:
        self._ring: deque[tuple[int, Totals]] = deque(maxlen=SECONDS + 1)

    def due(self, now_ns: int) -> bool:
        """Whether the last sample is a second old."""
        return not self._ring or now_ns - self._ring[-1][0] >= _DUE_NS

    def sample(self, now_ns: int, totals: Totals) -> None:
        """Take the totals of this second."""
        self._ring.append((now_ns, totals))

    def minute(self) -> Minute | None:
        """The last minute, or what there is of it; None before the second sample."""
        if len(self._ring) < 2:
            return None
        (began, first), (ended, last) = self._ring[0], self._ring[-1]
        window = ended - began
        return Minute(
            seconds=window / _NS_PER_S,
            wall_us=_wall(window, last.busy_ns - first.busy_ns, last.arithmetic_ns - first.arithmetic_ns),
            stages_us={
                name: (after - before) // _NS_PER_US
                for name, after, before in zip(STAGE_NAMES, last.stage_ns, first.stage_ns, strict=True)
            },
            histograms={name: _less(counts, first.histograms[name]) for name, counts in last.histograms.items()},
            finished=_grown(last.finished, first.finished),
            refused=_grown(last.refused, first.refused),
            steps=_grown(last.steps, first.steps),
            tokens=last.tokens - first.tokens,
            bookings=_grown(last.bookings, first.bookings),
            deadlines=_grown(last.deadlines, first.deadlines),
            abandoned=_grown(last.abandoned, first.abandoned),
            tenants_us={name: spent // _NS_PER_US for name, spent in _grown(last.tenants, first.tenants).items()},
        )

    def columns(self, newest: int = SECONDS) -> dict[str, list[list[int]]]:
        """By histogram, what each of the ``newest`` seconds added to each bucket, oldest first."""
        ring = list(self._ring)[-newest - 1 :]
        names = ring[-1][1].histograms if ring else ()
        return {name: list(_steps([totals.histograms[name] for _, totals in ring])) for name in names}


def _wall(window_ns: int, busy_ns: int, arithmetic_ns: int) -> dict[str, int]:
    """The parts of a stretch of wall time; they sum to it, although steps may reach over its borders."""
    busy = min(max(0, busy_ns), window_ns)
    arithmetic = min(max(0, arithmetic_ns), busy)
    whole, worked, computed = (each // _NS_PER_US for each in (window_ns, busy, arithmetic))
    return {"arithmetic": computed, "glue": worked - computed, "idle": whole - worked}


def _grown(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items()}


def _less(after: tuple[int, ...], before: tuple[int, ...]) -> list[int]:
    return [new - old for new, old in zip(after, before, strict=True)]


def _steps(counts: list[tuple[int, ...]]) -> Iterator[list[int]]:
    for before, after in pairwise(counts):
        yield _less(after, before)
