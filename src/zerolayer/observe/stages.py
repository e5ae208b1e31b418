"""Where a request's time went: nine stages that partition it, first byte read to last byte given to the kernel.

A partition, not a set of timers: every mark closes the span since the previous mark, so the stages sum to the whole
exactly. *Arithmetic* is ``prefill`` and ``decode``: wall time of steps that hold a row of the request. Work on
earlier tokens that overlaps a running step is hidden behind that step and belongs to it. All times are monotonic
nanoseconds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


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
# For every request or token: a member of an enumeration is dearer to name.
_WAIT: Final = int(Stage.WAIT)
_PREFILL: Final = int(Stage.PREFILL)
_DECODE: Final = int(Stage.DECODE)
_NOTHING: Final = [0] * len(Stage)
ARITHMETIC: Final = (Stage.PREFILL, Stage.DECODE)


class StageClock:
    """One request's account. A time before the last mark adds nothing: clocks read on two threads may cross.

    ``started_ns`` is the time of the first byte, ``last_ns`` that of the last mark.
    """

    __slots__ = ("_computing", "_spent", "last_ns", "started_ns")

    def __init__(self, first_byte_ns: int) -> None:
        self.started_ns = first_byte_ns
        self.last_ns = first_byte_ns
        self._spent = _NOTHING[:]
        self._computing = _PREFILL

    def mark(self, stage: int, now_ns: int) -> None:
        """Everything since the last mark belongs to ``stage``."""
        if now_ns > self.last_ns:
            self._spent[stage] += now_ns - self.last_ns
            self.last_ns = now_ns

    def step(self, started_ns: int, ended_ns: int) -> None:
        """A step held a row of this request: what lies before it is ``wait``, the step itself is arithmetic."""
        last = self.last_ns
        spent = self._spent
        if started_ns > last:
            spent[_WAIT] += started_ns - last
            last = started_ns
        if ended_ns > last:
            spent[self._computing] += ended_ns - last
            last = ended_ns
        self.last_ns = last

    def first_token(self) -> None:
        """Steps after this one are ``decode``."""
        self._computing = _DECODE

    @property
    def computing(self) -> Stage:
        """``PREFILL`` until the first token, then ``DECODE``."""
        return Stage(self._computing)

    @property
    def elapsed_ns(self) -> int:
        """First byte to the last mark; equals the sum of ``spent_ns``."""
        return self.last_ns - self.started_ns

    def spent_ns(self) -> tuple[int, ...]:
        """Nanoseconds of each stage, in the order of ``Stage``."""
        return tuple(self._spent)

    def floors_us(self) -> tuple[int, ...]:
        """Whole microseconds of each stage, in the order of ``Stage``, each rounded down."""
        read, parse, guard, tokenise, wait, prefill, decode, frame, write = self._spent
        return (  # a third of what a loop takes
            read // 1000, parse // 1000, guard // 1000, tokenise // 1000, wait // 1000,
            prefill // 1000, decode // 1000, frame // 1000, write // 1000,
        )  # fmt: skip

    def spent_us(self) -> dict[str, int]:
        """Microseconds by stage name, rounded along the running sum, so that they too sum to the whole."""
        spent: dict[str, int] = {}
        total = before = 0
        for name, nanoseconds in zip(STAGE_NAMES, self._spent, strict=True):
            total += nanoseconds
            spent[name] = total // 1000 - before
            before = total // 1000
        return spent
