"""What a step adds to the accounts of the requests in it: their stages, and what they cost.

Most steps hold the same decode rows as the step before. Their requests ride: such a step is added once, to sums that
all of them share, and a request takes its part out when it is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from zerolayer.model.letters import StepReport
from zerolayer.observe.compute import Charge
from zerolayer.observe.stages import SharedSteps, StageClock


class Meter(Protocol):
    """Whose compute it was, by slot."""

    def begin(self, slot: int, tenant: str) -> None:
        """From now on the rows of ``slot`` are this tenant's."""

    def step(
        self, started_ns: int, ended_ns: int, decode: Sequence[int], chunk_slot: int, chunk_share: float
    ) -> Charge:
        """A step ran. ``chunk_share`` (0 to 1) is what its chunk cost of it; ``chunk_slot`` -1: nobody's, or none."""

    def rows(self, started_ns: int, ended_ns: int, decode: Sequence[int]) -> int:
        """A step without a chunk ran; returns what each of its rows is charged."""

    def unrecorded(self, slot: int, core_ns: int) -> None:
        """Of what was charged to the slot's tenant, this comes after its request was answered."""


class Charges(msgspec.Struct, frozen=True):
    """Who pays for a step. ``chunk_share`` of its decode rows and prefill tokens is what its chunk costs, 0 to 1."""

    meter: Meter
    chunk_share: Callable[[int, int], float]


class Rider:
    """A request that holds a slot, as its steps see it. ``prefilled`` are tokens of its prompt that were read."""

    stages: StageClock
    prefilled = 0
    _core_ns = 0  # while it rides: what it was charged, less what the shared steps were
    _steps: SharedSteps | None = None

    @property
    def compute_ns(self) -> int:
        """What was charged to it so far, nanoseconds of one core."""
        steps = self._steps
        return self._core_ns if steps is None else self._core_ns + steps.core_ns

    def computed(self, started_ns: int, ended_ns: int, core_ns: int) -> None:
        """It was in a step, alone in its account."""
        self.stages.step(started_ns, ended_ns)
        self._core_ns += core_ns

    def ride(self, steps: SharedSteps) -> None:
        """It is in every further one of ``steps``."""
        self.stages.ride(steps)
        self._core_ns -= steps.core_ns
        self._steps = steps

    def alight(self) -> None:
        """It is in no further one."""
        if self._steps is not None:
            self.stages.alight()
            self._core_ns += self._steps.core_ns
            self._steps = None


class StepAccount:
    """Keeps the accounts of ``running``, the requests by slot. All on the loop."""

    def __init__(self, running: Sequence[Rider | None], charges: Charges | None) -> None:
        self._running = running
        self._charges = charges
        self._steps = SharedSteps()
        self._rows: Sequence[int] | None = None  # of the step before, if they are known to be the same requests
        self._riding: dict[int, Rider] = {}
        self._alone: list[int] = []  # slots among the rows whose request has ended

    def step(self, report: StepReport) -> None:
        """The step's time and price, before its replies, so that each of them tells all of it."""
        charges, started, ended = self._charges, report.started_ns, report.ended_ns
        rows, row_ns, chunk_ns = report.decode, 0, 0
        if charges is not None and report.failure is None and ended > started:
            if report.prefill_tokens:
                share = charges.chunk_share(len(rows), report.prefill_tokens)
                charge = charges.meter.step(started, ended, rows, report.prefill_slot, share)
                row_ns, chunk_ns = charge.row_ns, charge.chunk_ns
            else:
                row_ns = charges.meter.rows(started, ended, rows)
        if rows is not self._rows and rows != self._rows:
            self._leave(rows)
            self._steps.step(started, ended, row_ns)
            self._join(report, row_ns)
        elif rows:
            self._steps.step(started, ended, row_ns)
        if charges is not None:
            for slot in self._alone:
                charges.meter.unrecorded(slot, row_ns)
        if report.prefill_slot >= 0:
            request = self._running[report.prefill_slot]
            if request is not None:
                request.computed(started, ended, chunk_ns)
                request.prefilled += report.prefill_tokens
            elif charges is not None:
                charges.meter.unrecorded(report.prefill_slot, chunk_ns)

    def ended(self, slot: int) -> None:
        """The request of ``slot`` has ended; the slot itself may still be in a step or two."""
        rider = self._riding.pop(slot, None)
        if rider is not None:
            rider.alight()
            self._rows = None  # whoever is in the next step is looked at again

    def _leave(self, rows: Sequence[int]) -> None:
        for slot in self._riding.keys() - set(rows):
            self._riding.pop(slot).alight()

    def _join(self, report: StepReport, row_ns: int) -> None:
        """Look at each row: whoever was not in the step before is charged for this one by itself, and rides on."""
        self._rows = report.decode
        self._alone = []
        for slot in report.decode:
            if slot in self._riding:
                continue
            request = self._running[slot]
            if request is None:
                self._alone.append(slot)
            else:
                request.computed(report.started_ns, report.ended_ns, row_ns)
                request.ride(self._steps)
                self._riding[slot] = request
