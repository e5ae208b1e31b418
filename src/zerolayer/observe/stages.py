"""Where a request's time went: nine stages that partition it, first byte read to last byte given to the kernel.

A partition, not a set of timers: every mark closes the span since the previous mark, so the stages sum to the whole
exactly. *Arithmetic* is ``prefill`` and ``decode``: wall time of steps that hold a row of the request. Work on
earlier tokens that overlaps a running step is hidden behind that step and belongs to it. All times are monotonic
nanoseconds.

The sums are compiled, as every request makes a handful of marks (``native/observe_stages.hpp``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from zerolayer.observe._native import SharedSteps, StageSums

__all__ = ["ARITHMETIC", "STAGE_NAMES", "SharedSteps", "Stage", "StageClock"]


class Stage(IntEnum):
    """The stages in the order in which a request meets them; the names are the same everywhere."""

    READ = 0  # first byte to complete body
    PARSE = 1  # bytes to Request
    GUARD = 2  # may it run, and where
    TOKENISE = 3  # text to ids
    WAIT = 4  # no step holds a row of it: mailbox, step borders
    PREFILL = 5  # steps up to the first token
    DECODE = 6  # steps after it
    FRAME = 7  # hand-over and rendering after the last step
    WRITE = 8  # the last write


STAGE_NAMES: Final = tuple(stage.name.lower() for stage in Stage)
ARITHMETIC: Final = (Stage.PREFILL, Stage.DECODE)


class StageClock(StageSums):
    """One request's account, from the time of its first byte."""

    __slots__ = ()

    @property
    def computing(self) -> Stage:
        """``PREFILL`` until the first token, then ``DECODE``."""
        return Stage(self.computes)

    def put_down(self, numbers: list[int]) -> None:
        """Append the nanoseconds of each stage, in the order of ``Stage``, and their sum."""
        numbers += self.spent_ns()
        numbers.append(self.elapsed_ns)

    def spent_us(self) -> dict[str, int]:
        """Microseconds by stage name, rounded along the running sum, so that they too sum to the whole."""
        spent: dict[str, int] = {}
        total = before = 0
        for name, nanoseconds in zip(STAGE_NAMES, self.spent_ns(), strict=True):
            total += nanoseconds
            spent[name] = total // 1000 - before
            before = total // 1000
        return spent
