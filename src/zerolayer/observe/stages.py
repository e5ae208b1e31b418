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


class SharedSteps:
    """Sums of the steps that many requests are in together: each step is added once, whoever rides in it.

    ``last_ns`` is the end of the last one; ``wait_ns`` lies between steps, ``arithmetic_ns`` inside them, and both
    make up all time since the first. ``core_ns`` is what one row was charged in all of them.
    """

    __slots__ = ("arithmetic_ns", "core_ns", "last_ns", "wait_ns")

    def __init__(self) -> None:
        self.last_ns = 0
        self.wait_ns = 0
        self.arithmetic_ns = 0
        self.core_ns = 0

    def step(self, started_ns: int, ended_ns: int, row_ns: int) -> None:
        """A step ran; each of its decode rows was charged ``row_ns``."""
        last = self.last_ns
        if started_ns > last:
            self.wait_ns += started_ns - last
            last = started_ns
        if ended_ns > last:
            self.arithmetic_ns += ended_ns - last
            last = ended_ns
        self.last_ns = last
        self.core_ns += row_ns


class StageClock:
    """One request's account. A time before the last mark adds nothing: clocks read on two threads may cross.

    ``started_ns`` is the time of the first byte, ``last_ns`` that of the last mark.
    """

    __slots__ = ("_computing", "_from", "_rides", "_shared", "_spent", "last_ns", "started_ns")

    def __init__(self, first_byte_ns: int) -> None:
        self.started_ns = first_byte_ns
        self.last_ns = first_byte_ns
        self._spent = _NOTHING[:]
        self._computing = _PREFILL
        self._shared: SharedSteps | None = None  # steps that are added here when somebody looks
        self._rides = 0  # answers of this request that are in them
        self._from = (0, 0, 0)  # the shared sums that are in this account, and the time up to which they are

    def ride(self, steps: SharedSteps) -> None:
        """From here on one more answer of the request is in all of ``steps``; the last of them is in this account."""
        self.settle()
        self._rides += 1
        if self._rides == 1:
            self._shared = steps
            self._from = (steps.wait_ns, steps.arithmetic_ns, steps.last_ns)

    def alight(self) -> None:
        """One answer less is in the shared steps."""
        self.settle()
        self._rides -= 1
        if not self._rides:
            self._shared = None

    def settle(self) -> None:
        """Add the shared steps up to now. What lies before the last mark is in the account already."""
        shared = self._shared
        if shared is None or shared.last_ns <= self.last_ns:
            return
        wait_ns, arithmetic_ns, last_ns = self._from
        wait, arithmetic = shared.wait_ns - wait_ns, shared.arithmetic_ns - arithmetic_ns
        known = min(self.last_ns - last_ns, wait)  # a mark came after the last step that was added
        self._spent[_WAIT] += wait - known
        self._spent[self._computing] += arithmetic - (self.last_ns - last_ns - known)
        self.last_ns = shared.last_ns
        self._from = (shared.wait_ns, shared.arithmetic_ns, shared.last_ns)

    def mark(self, stage: int, now_ns: int) -> None:
        """Everything since the last mark belongs to ``stage``."""
        if self._shared is not None:
            self.settle()
        if now_ns > self.last_ns:
            self._spent[stage] += now_ns - self.last_ns
            self.last_ns = now_ns

    def step(self, started_ns: int, ended_ns: int) -> None:
        """A step held a row of this request: what lies before it is ``wait``, the step itself is arithmetic."""
        if self._shared is not None:
            self.settle()
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

    def put_down(self, numbers: list[int]) -> None:
        """Append the nanoseconds of each stage, in the order of ``Stage``, and their sum."""
        numbers += self._spent
        numbers.append(self.last_ns - self.started_ns)

    def spent_us(self) -> dict[str, int]:
        """Microseconds by stage name, rounded along the running sum, so that they too sum to the whole."""
        spent: dict[str, int] = {}
        total = before = 0
        for name, nanoseconds in zip(STAGE_NAMES, self._spent, strict=True):
            total += nanoseconds
            spent[name] = total // 1000 - before
            before = total // 1000
        return spent
