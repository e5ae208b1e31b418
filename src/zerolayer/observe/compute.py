"""Whose compute it was: every nanosecond of every engine core, charged to a tenant or to ``_idle``.

Time is split at step borders. A step is charged to the requests whose rows it held, by their share; what lies between
two steps, a step that failed and the engine's own heartbeats are ``_idle``. So the charges always sum to wall time x
cores, exactly, because each span begins where the last one ended. Pure: times are handed in, monotonic nanoseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from zerolayer.observe._native import ComputeSums
from zerolayer.observe.exposition import family, single

IDLE: Final = "_idle"
OTHER: Final = "_other"
LABELS: Final = 100  # tenants that a page of metrics names
_TOTALS: Final = 1000  # tenants with a total of their own; beyond that they share one, so that memory stays bounded


class Charge(msgspec.Struct, frozen=True):
    """Core-nanoseconds of one step: of each decode row, and of the chunk."""

    row_ns: int
    chunk_ns: int


class ComputeMeter(ComputeSums):
    """Totals in core-nanoseconds. One writer. ``slots`` is how many slots there are, ``cores`` what a step occupies.

    Most steps have the rows of the step before, and are added up natively until these are others, or somebody looks.
    """

    def __init__(self, cores: int, slots: int, now_ns: int) -> None:
        self.cores = cores
        self.started_ns = self.until_ns = now_ns
        self._owners = [IDLE] * slots
        self._totals: dict[str, int] = {IDLE: 0}
        self._unrecorded: dict[str, int] = {}
        self._rows: Sequence[int] | None = None  # of the last step, if they still are the same tenants'
        self._shares: dict[str, int] = {}  # how many of them are whose

    @property
    def wall_ns(self) -> int:
        """The time that is accounted for; times ``cores`` it is the sum of ``totals``."""
        return self.until_ns - self.started_ns

    @property
    def totals(self) -> dict[str, int]:
        """Core-nanoseconds by tenant since the start."""
        self._settle()
        return dict(self._totals)

    def begin(self, slot: int, tenant: str) -> None:
        """From now on the rows of ``slot`` are this tenant's."""
        self._settle()
        known = tenant in self._totals or len(self._totals) < _TOTALS
        self._owners[slot] = tenant if known else OTHER
        self._rows = None

    def rows(self, started_ns: int, ended_ns: int, decode: Sequence[int]) -> int:
        """A step without a chunk ran; returns what each of its rows is charged."""
        if decode is not self._rows:
            self._take(decode)
        return self.rows_ns(started_ns, ended_ns, len(decode))

    def step(
        self, started_ns: int, ended_ns: int, decode: Sequence[int], chunk_slot: int, chunk_share: float
    ) -> Charge:
        """A step ran. ``chunk_share`` (0 to 1) is what its chunk cost of it; ``chunk_slot`` -1: nobody's, or none."""
        if decode is not self._rows:
            self._take(decode)
        row_ns, chunk_ns = self.split_ns(started_ns, ended_ns, len(decode), chunk_share)
        if chunk_ns:
            owner, totals = self._owners[chunk_slot] if chunk_slot >= 0 else IDLE, self._totals
            totals[owner] = totals.get(owner, 0) + chunk_ns
        return Charge(row_ns, chunk_ns)

    def _take(self, decode: Sequence[int]) -> None:
        """These are the rows from now on."""
        if decode == self._rows:
            return
        self._settle()
        owners = self._owners
        self._rows, self._shares = decode, Counter([owners[slot] for slot in decode])

    def _settle(self) -> None:
        """Add up what is charged so far."""
        row_ns, idle_ns = self.take_ns()
        totals = self._totals
        totals[IDLE] += idle_ns
        if row_ns:
            for owner, count in self._shares.items():
                totals[owner] = totals.get(owner, 0) + row_ns * count

    def unrecorded(self, slot: int, core_ns: int) -> None:
        """Of what was charged to the slot's tenant, this comes after its request was answered."""
        owner = self._owners[slot]
        self._unrecorded[owner] = self._unrecorded.get(owner, 0) + core_ns

    def take_unrecorded(self) -> dict[str, int]:
        """Such charges by tenant, since the last call."""
        taken, self._unrecorded = self._unrecorded, {}
        return taken


class FurtherSlots:
    """Slots of another engine on the same cores, which takes turns with the first: they follow on ``first``."""

    def __init__(self, meter: ComputeMeter, first: int) -> None:
        self._meter = meter
        self._first = first

    def begin(self, slot: int, tenant: str) -> None:
        """As ``ComputeMeter.begin``."""
        self._meter.begin(self._first + slot, tenant)

    def step(
        self, started_ns: int, ended_ns: int, decode: Sequence[int], chunk_slot: int, chunk_share: float
    ) -> Charge:
        """As ``ComputeMeter.step``."""
        first = self._first
        rows = [first + slot for slot in decode]
        return self._meter.step(started_ns, ended_ns, rows, chunk_slot + first if chunk_slot >= 0 else -1, chunk_share)

    def rows(self, started_ns: int, ended_ns: int, decode: Sequence[int]) -> int:
        """As ``ComputeMeter.rows``."""
        return self._meter.rows(started_ns, ended_ns, [self._first + slot for slot in decode])

    def unrecorded(self, slot: int, core_ns: int) -> None:
        """As ``ComputeMeter.unrecorded``."""
        self._meter.unrecorded(self._first + slot, core_ns)


def labelled(totals: Mapping[str, int]) -> dict[str, int]:
    """``totals`` by label: the first ``LABELS`` tenants have their names, the rest share one, and ``_idle`` stays.

    Which of them are the first never changes while they are all kept in the order of their coming, so that no counter
    ever falls.
    """
    named = dict(islice(((name, spent) for name, spent in totals.items() if name not in (IDLE, OTHER)), LABELS))
    if IDLE in totals:
        named[IDLE] = totals[IDLE]
    rest = sum(totals.values()) - sum(named.values())
    return {**named, OTHER: rest} if rest or OTHER in totals else named


def compute_lines(labels: str, cores: int, accounted_ns: int, totals: Mapping[str, int]) -> Iterator[str]:
    """The samples of ``totals`` (core-nanoseconds by tenant), which sum to ``accounted_ns`` x ``cores``."""
    if not totals:
        return
    yield from single("zerolayer:engine_cores", "gauge", "Cores that steps run on.", labels, cores)
    name = "zerolayer:accounted_microseconds_total"
    yield from single(name, "counter", "Wall time that is charged to somebody.", labels, accounted_ns / 1000)
    name = "zerolayer:compute_microseconds_total"
    spent = [(tenant, core_ns / 1000) for tenant, core_ns in sorted(labelled(totals).items())]
    yield from family(name, "counter", "Wall time x cores, by who is charged.", labels, "tenant", spent)
