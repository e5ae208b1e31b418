"""What steps add to requests is the same whether they ride in sums that they share or are looked at one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.front.step_account import Charges, Rider, StepAccount
from zerolayer.model.letters import StepReport
from zerolayer.observe.compute import IDLE, ComputeMeter
from zerolayer.observe.stages import Stage, StageClock

SLOTS = 4
CORES = 2


class Request(Rider):
    def __init__(self, stages: StageClock) -> None:
        self.stages = stages


class Plain:
    """The same account, kept step by step."""

    def __init__(self, first_byte_ns: int) -> None:
        self.stages = StageClock(first_byte_ns)
        self.compute_ns = 0


# What happens between two steps: who comes, who ends; then who is in the step, and how long it waits and takes.
STEPS = st.lists(
    st.tuples(
        st.sets(st.integers(0, SLOTS - 1), max_size=2),
        st.sets(st.integers(0, SLOTS - 1), max_size=1),
        st.sets(st.integers(0, SLOTS - 1), max_size=1),
        st.integers(0, 50),
        st.integers(1, 1000),
    ),
    max_size=40,
)


def charged(rows: int, chunk: bool, taken_ns: int) -> tuple[int, int]:
    """Nanoseconds of a row and of the chunk: by the row, and a chunk costs half of a step with rows."""
    whole = taken_ns * CORES
    chunk_ns = (round(whole * 0.5) if chunk else 0) if rows else whole
    row_ns = (whole - chunk_ns) // rows if rows else 0
    return row_ns, whole - row_ns * rows


class Bench:
    def __init__(self) -> None:
        self.running: list[Request | None] = [None] * SLOTS
        self.plain: list[Plain | None] = [None] * SLOTS
        self.meter = ComputeMeter(CORES, SLOTS, 0)
        share = Charges(self.meter, lambda _rows, tokens: 0.5 if tokens else 0.0)
        self.account = StepAccount(self.running, share)
        self.decoding: set[int] = set()
        self.ended: list[tuple[Request, Plain]] = []
        self.now_ns = 0

    def come(self, slot: int) -> None:
        if self.running[slot] is None and slot not in self.decoding:
            self.running[slot], self.plain[slot] = Request(StageClock(self.now_ns)), Plain(self.now_ns)
            self.meter.begin(slot, f"tenant {slot % 2}")

    def end(self, slot: int) -> None:
        """The client leaves, or its text ends before the engine knows: the row may be in a step more."""
        request, plain = self.running[slot], self.plain[slot]
        if request is not None and plain is not None:
            for each in (request, plain):
                each.stages.mark(Stage.FRAME, self.now_ns + 3)
            self.running[slot] = self.plain[slot] = None
            self.account.ended(slot)
            self.ended.append((request, plain))

    def step(self, chunks: set[int], wait_ns: int, taken_ns: int) -> None:
        started, self.now_ns = self.now_ns + wait_ns, self.now_ns + wait_ns + taken_ns
        filled = next((slot for slot in chunks if self.running[slot] and slot not in self.decoding), -1)
        rows = tuple(sorted(self.decoding))
        report = StepReport(started, self.now_ns, "greedy", rows, filled, 8 if filled >= 0 else 0)
        self.account.step(report)
        row_ns, chunk_ns = charged(len(rows), filled >= 0, taken_ns)
        for slot in rows:
            self._add(slot, started, row_ns)
        if filled >= 0:
            self._add(filled, started, chunk_ns)
            self.decoding.add(filled)
        self.decoding -= {slot for slot in rows if self.running[slot] is None}

    def _add(self, slot: int, started: int, core_ns: int) -> None:
        plain = self.plain[slot]
        if plain is not None:
            plain.stages.step(started, self.now_ns)
            plain.compute_ns += core_ns


def after(steps: list[tuple[set[int], set[int], set[int], int, int]]) -> Bench:
    """A bench on which all of it has happened, and everybody has ended."""
    bench = Bench()
    for coming, ending, chunks, wait_ns, taken_ns in steps:
        for slot in sorted(coming):
            bench.come(slot)
        bench.step(coming | chunks, wait_ns, taken_ns)
        for slot in ending:
            bench.end(slot)
    for slot in range(SLOTS):
        bench.end(slot)
    return bench


@given(STEPS)
def test_riding_changes_no_account(steps):
    bench = after(steps)
    for request, plain in bench.ended:
        assert request.stages.spent_ns() == plain.stages.spent_ns()
        assert request.compute_ns == plain.compute_ns


@given(STEPS)
def test_what_requests_and_nobody_are_charged_is_all_there_was(steps):
    bench = after(steps)
    told = sum(request.compute_ns for request, _ in bench.ended)
    unrecorded = sum(core_ns for tenant, core_ns in bench.meter.take_unrecorded().items() if tenant != IDLE)
    assert told + unrecorded == sum(bench.meter.totals.values()) - bench.meter.totals[IDLE]
    assert sum(bench.meter.totals.values()) == bench.now_ns * CORES


def test_a_request_that_rides_is_asked_at_any_time():
    bench = Bench()
    bench.come(0)
    bench.step({0}, 0, 100)
    for _ in range(3):
        bench.step(set(), 10, 100)
    request = bench.running[0]
    assert request is not None
    assert request.compute_ns == 4 * 100 * CORES
    request.stages.settle()
    assert request.stages.spent_ns()[Stage.WAIT] == 30


def test_answers_of_one_request_ride_in_one_account():
    stages = StageClock(0)
    running: list[Request | None] = [Request(stages), Request(stages)]
    account = StepAccount(running, None)
    for number in range(4):
        account.step(StepReport(100 * number + 10, 100 * number + 100, "greedy", (0, 1)))
    running[0] = None
    account.ended(0)
    account.step(StepReport(410, 500, "greedy", (1,)))
    running[1] = None
    account.ended(1)
    assert stages.spent_ns()[Stage.PREFILL] == 5 * 90
    assert stages.spent_ns()[Stage.WAIT] == 5 * 10
    assert stages.last_ns == 500
