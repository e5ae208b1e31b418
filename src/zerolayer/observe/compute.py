"""Whose compute it was: every nanosecond of every engine core, charged to a tenant or to ``_idle``.

Time is split at step borders. A step is charged to the requests whose rows it held, by their share; what lies between
two steps, a step that failed and the engine's own heartbeats are ``_idle``. So the charges always sum to wall time x
cores, exactly, because each span begins where the last one ended. Pure: times are handed in, monotonic nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

IDLE: Final = "_idle"
OTHERS: Final = "_others"
_LABELS: Final = 1000  # tenants with a total of their own; beyond that they share one, so that /metrics stays bounded


class Charge(msgspec.Struct, frozen=True):
    """Core-nanoseconds of one step: of each decode row, and of the chunk."""

    row_ns: int
    chunk_ns: int


_NOTHING: Final = Charge(0, 0)


class ComputeMeter:
    """Totals in core-nanoseconds. One writer. ``slots`` is how many slots there are, ``cores`` what a step occupies."""

    def __init__(self, cores: int, slots: int, now_ns: int) -> None:
        self.cores = cores
        self.started_ns = now_ns
        self._until_ns = now_ns
        self._owners = [IDLE] * slots
        self._totals: dict[str, int] = {IDLE: 0}
        self._unrecorded: dict[str, int] = {}

    @property
    def wall_ns(self) -> int:
        """The time that is accounted for; times ``cores`` it is the sum of ``totals``."""
        return self._until_ns - self.started_ns

    @property
    def totals(self) -> dict[str, int]:
        """Core-nanoseconds by tenant since the start."""
        return dict(self._totals)

    def begin(self, slot: int, tenant: str) -> None:
        """From now on the rows of ``slot`` are this tenant's."""
        known = tenant in self._totals or len(self._totals) < _LABELS
        self._owners[slot] = tenant if known else OTHERS

    def step(
        self, started_ns: int, ended_ns: int, decode: Sequence[int], chunk_slot: int, chunk_share: float
    ) -> Charge:
        """A step ran. ``chunk_share`` (0 to 1) is what its chunk cost of it; ``chunk_slot`` -1: nobody's, or none."""
        self.rest(started_ns)
        begun = max(started_ns, self._until_ns)
        if ended_ns <= begun:
            return _NOTHING
        self._until_ns = ended_ns
        whole = (ended_ns - begun) * self.cores
        rows = len(decode)
        chunk_ns = round(whole * chunk_share) if rows else whole
        row_ns = (whole - chunk_ns) // rows if rows else 0
        chunk_ns = whole - row_ns * rows  # what does not divide is the chunk's, or nobody's
        totals, owners = self._totals, self._owners
        for slot in decode:
            owner = owners[slot]
            totals[owner] = totals.get(owner, 0) + row_ns
        owner = owners[chunk_slot] if chunk_slot >= 0 else IDLE
        totals[owner] = totals.get(owner, 0) + chunk_ns
        return Charge(row_ns, chunk_ns)

    def rest(self, now_ns: int) -> None:
        """No step ran since the last one ended, up to now."""
        if now_ns > self._until_ns:
            self._totals[IDLE] += (now_ns - self._until_ns) * self.cores
            self._until_ns = now_ns

    def unrecorded(self, slot: int, core_ns: int) -> None:
        """Of what was charged to the slot's tenant, this comes after its request was answered."""
        owner = self._owners[slot]
        self._unrecorded[owner] = self._unrecorded.get(owner, 0) + core_ns

    def take_unrecorded(self) -> dict[str, int]:
        """Such charges by tenant, since the last call."""
        taken, self._unrecorded = self._unrecorded, {}
        return taken
