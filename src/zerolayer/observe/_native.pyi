"""The accounts that every request writes into, compiled; implemented in src/zerolayer/native/observe_module.cpp.

All times are monotonic nanoseconds. ``tests/observe/observe_specification.py`` has the same in Python.
"""

class SharedSteps:
    """Sums of the steps that many requests are in together: each step is added once, whoever rides in it.

    ``last_ns`` is the end of the last one; ``wait_ns`` lies between steps, ``arithmetic_ns`` inside them, and both
    make up all time since the first. ``core_ns`` is what one row was charged in all of them.
    """

    @property
    def last_ns(self) -> int: ...
    @property
    def wait_ns(self) -> int: ...
    @property
    def arithmetic_ns(self) -> int: ...
    @property
    def core_ns(self) -> int: ...
    def step(self, started_ns: int, ended_ns: int, row_ns: int, /) -> None:
        """A step ran; each of its decode rows was charged ``row_ns``."""

class StageSums:
    """One request's account. A time before the last mark adds nothing: clocks read on two threads may cross.

    ``started_ns`` is the time of the first byte, ``last_ns`` that of the last mark; ``computes`` is the stage that
    steps belong to.
    """

    def __init__(self, first_byte_ns: int) -> None: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def last_ns(self) -> int: ...
    @property
    def computes(self) -> int: ...
    @property
    def elapsed_ns(self) -> int:
        """First byte to the last mark; equals the sum of ``spent_ns``."""

    def ride(self, steps: SharedSteps, /) -> None:
        """From here on one more answer of the request is in all of ``steps``; the last of them is in this account."""

    def alight(self) -> None:
        """One answer less is in the shared steps."""

    def settle(self) -> None:
        """Add the shared steps up to now. What lies before the last mark is in the account already."""

    def mark(self, stage: int, now_ns: int, /) -> None:
        """Everything since the last mark belongs to ``stage``. Raises ``IndexError`` where there is none of it."""

    def step(self, started_ns: int, ended_ns: int, /) -> None:
        """A step held a row of this request: what lies before it is ``wait``, the step itself is arithmetic."""

    def first_token(self) -> None:
        """Steps after this one are ``decode``."""

    def spent_ns(self) -> tuple[int, ...]:
        """Nanoseconds of each stage, in their order."""

class ComputeSums:
    """Core-nanoseconds that are charged and not yet added up by whose they are: of a decode row, and nobody's.

    ``cores`` is what a step occupies; all time up to ``until_ns`` is accounted for.
    """

    cores: int
    until_ns: int
    def rest(self, now_ns: int, /) -> None:
        """No step ran since the last one ended, up to now: that time is nobody's."""

    def rows_ns(self, started_ns: int, ended_ns: int, rows: int, /) -> int:
        """A step of decode rows ran, or a part of it that is not accounted for; returns what each of them is charged.

        What does not divide is nobody's.
        """

    def split_ns(self, started_ns: int, ended_ns: int, rows: int, chunk_share: float, /) -> tuple[int, int]:
        """A step that carried a chunk ran: what is each row's, and the chunk's, which the caller is to charge."""

    def take_ns(self) -> tuple[int, int]:
        """Of each row, and nobody's, since the last call."""

class BusySums:
    """Busy time and steps. ``arithmetic_ns`` is the part of the busy time that lay inside steps.

    ``in_flight`` are the requests that entered and did not leave.
    """

    @property
    def arithmetic_ns(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    def enter(self, now_ns: int, /) -> None:
        """A request's first byte was read."""

    def leave(self, now_ns: int, /) -> None:
        """A request's last byte was written, or it is gone."""

    def step(self, started_ns: int, ended_ns: int, /) -> None:
        """A step ran; only the part inside the open (or just closed) busy window counts."""

    def busy_ns(self, now_ns: int, /) -> int:
        """Wall time with at least one request in flight, up to now."""
