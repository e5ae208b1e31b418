"""The step clock against the mock engine, whose steps take no time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.errors import EngineFailed
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.letters import StepReport
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.program import Programs
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import FinishReason, Sampling

SLOTS, CHUNK = 4, 8


class Recorder:
    """Collects reports; ``until`` waits for one that answers a question."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self._changed = threading.Condition()

    def __call__(self, report: StepReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def until(self, question: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(question, timeout=10), "the step clock did not come to it"

    def tokens(self, slot: int) -> list[SampledToken]:
        return [token for report in self.reports for token in report.tokens if token.slot == slot]

    def released(self) -> list[int]:
        return [slot for report in self.reports for slot in report.released]


class CountingClock:
    """Nanoseconds that go on by one at every look."""

    def __init__(self) -> None:
        self._now = 0

    def __call__(self) -> int:
        self._now += 1
        return self._now

    def leap(self, nanoseconds: int) -> None:
        self._now += nanoseconds


class BrokenEngine(MockEngine):
    """Fails at the given step, counted from 0."""

    def __init__(self, fails_at: int) -> None:
        super().__init__(slots=SLOTS, slot_tokens=64, chunk_tokens=CHUNK, step_us=0, vocabulary=100)
        self.left = fails_at

    def step(self, plan: StepPlan) -> list[SampledToken]:
        self.left -= 1
        if self.left < 0:
            raise EngineFailed("broken on purpose")
        return super().step(plan)


class ObservingEngine(MockEngine):
    """Notes how many reports had left when each step began, and when each slot was closed."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(slots=SLOTS, slot_tokens=64, chunk_tokens=CHUNK, step_us=0, vocabulary=100)
        self._recorder = recorder
        self.reports_before: list[int] = []
        self.reports_before_closing: list[int] = []

    def close(self, slot: int) -> None:
        self.reports_before_closing.append(len(self._recorder.reports))
        super().close(slot)

    def step(self, plan: StepPlan) -> list[SampledToken]:
        self.reports_before.append(len(self._recorder.reports))
        return super().step(plan)


class RefusingEngine(MockEngine):
    """Does not open a prompt that begins with 13."""

    def __init__(self) -> None:
        super().__init__(slots=SLOTS, slot_tokens=64, chunk_tokens=CHUNK, step_us=0, vocabulary=100)

    def open(self, slot: int, generation: Generation) -> None:
        if generation.prompt[0] == 13:
            raise EngineFailed("refused on purpose")
        super().open(slot, generation)


def engine(step_us: int = 0) -> MockEngine:
    return MockEngine(slots=SLOTS, slot_tokens=64, chunk_tokens=CHUNK, step_us=step_us, vocabulary=100)


def generation(prompt: Sequence[int], max_tokens: int) -> Generation:
    return Generation(prompt, Sampling(temperature=0.0), max_tokens)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def clock(recorder: Recorder) -> Iterator[StepClock]:
    clock = StepClock(engine(step_us=500), recorder, CountingClock())
    clock.start()
    yield clock
    clock.stop()


def test_a_generation_has_all_its_tokens_and_the_last_one_says_why_it_ended(
    clock: StepClock, recorder: Recorder
) -> None:
    clock.admit(0, generation([1, 2, 3], 5))
    recorder.until(lambda: 0 in recorder.released())
    tokens = recorder.tokens(0)
    assert [token.finish for token in tokens] == [None] * 4 + [FinishReason.LENGTH]


def test_the_report_of_a_step_leaves_before_the_next_one_begins(recorder: Recorder) -> None:
    observing = ObservingEngine(recorder)
    clock = StepClock(observing, recorder, CountingClock())
    clock.start()
    clock.admit(0, generation([1, 2, 3], 5))
    recorder.until(lambda: 0 in recorder.released())
    clock.stop()
    assert observing.reports_before == [0, 1, 2, 3, 4]


def test_a_thread_that_stands_still_between_two_steps_is_seen_and_one_without_work_is_not() -> None:
    stands, may_go_on, over = threading.Event(), threading.Event(), threading.Event()

    def deliver(report: StepReport) -> None:
        stands.set()
        may_go_on.wait(10)
        if report.released:
            over.set()

    clock = StepClock(engine(), deliver, CountingClock())
    clock.start()
    assert clock.step_began_ns == 0
    clock.admit(0, generation([1, 2, 3], 3))
    assert stands.wait(10)
    assert clock.step_began_ns > 0  # the first step is over, and the second one has not begun
    may_go_on.set()
    assert over.wait(10)
    clock.stop()
    assert clock.step_began_ns == 0


def test_a_slot_is_closed_after_its_last_token_has_left_and_before_it_is_used_again(recorder: Recorder) -> None:
    observing = ObservingEngine(recorder)
    clock = StepClock(observing, recorder, CountingClock())
    clock.start()
    clock.admit(0, generation([1, 2, 3], 2))
    recorder.until(lambda: recorder.released() == [0])
    clock.admit(0, generation([1, 2, 3], 2))
    recorder.until(lambda: recorder.released() == [0, 0])
    clock.stop()
    assert observing.reports_before_closing == [2, 4]


def test_a_slot_is_released_in_the_report_that_carries_its_last_token(clock: StepClock, recorder: Recorder) -> None:
    clock.admit(2, generation([1], 3))
    recorder.until(lambda: 2 in recorder.released())
    (last,) = [report for report in recorder.reports if report.released]
    assert [token.finish for token in last.tokens] == [FinishReason.LENGTH]


def test_a_long_prompt_is_prefilled_in_chunks_one_a_step(clock: StepClock, recorder: Recorder) -> None:
    clock.admit(1, generation([7] * (2 * CHUNK + 1), 1))
    recorder.until(lambda: 1 in recorder.released())
    assert [report.prefill_slot for report in recorder.reports] == [1, 1, 1]


def test_running_slots_decode_in_the_steps_that_prefill_another(clock: StepClock, recorder: Recorder) -> None:
    clock.admit(0, generation([1], 40))
    recorder.until(lambda: len(recorder.tokens(0)) >= 2)
    clock.admit(3, generation([5] * (2 * CHUNK), 1))
    recorder.until(lambda: 3 in recorder.released())
    assert all(0 in report.decode for report in recorder.reports if report.prefill_slot == 3)


def test_a_cancelled_slot_is_released_and_gives_no_more_tokens(clock: StepClock, recorder: Recorder) -> None:
    clock.admit(0, generation([1], 60))
    recorder.until(lambda: len(recorder.tokens(0)) >= 1)
    clock.cancel(0)
    recorder.until(lambda: 0 in recorder.released())
    count = len(recorder.tokens(0))
    clock.admit(1, generation([1], 3))
    recorder.until(lambda: 1 in recorder.released())
    assert len(recorder.tokens(0)) == count


def test_a_cancel_in_the_middle_of_a_prompt_releases_the_slot(clock: StepClock, recorder: Recorder) -> None:
    clock.admit(0, generation([1] * 60, 4))
    recorder.until(lambda: any(report.prefill_slot == 0 for report in recorder.reports))
    clock.cancel(0)
    recorder.until(lambda: 0 in recorder.released())
    assert recorder.tokens(0) == []


def test_a_cancel_of_a_free_slot_is_void(clock: StepClock, recorder: Recorder) -> None:
    clock.cancel(3)
    clock.admit(0, generation([1], 2))
    recorder.until(lambda: 0 in recorder.released())
    assert recorder.released() == [0]


def test_a_cancel_touches_only_its_own_slot(clock: StepClock, recorder: Recorder) -> None:
    clock.admit(0, generation([1], 50))
    clock.admit(1, generation([2], 20))
    recorder.until(lambda: len(recorder.tokens(1)) >= 1)
    clock.cancel(0)
    recorder.until(lambda: 1 in recorder.released())
    assert len(recorder.tokens(1)) == 20


def test_a_released_slot_can_be_used_again(clock: StepClock, recorder: Recorder) -> None:
    for round_ in range(1, 4):
        clock.admit(0, generation([1], 2))
        recorder.until(lambda: recorder.released().count(0) == round_)  # noqa: B023 - used within the round
    assert len(recorder.tokens(0)) == 6


def test_the_program_of_a_step_covers_every_slot_of_it(clock: StepClock, recorder: Recorder) -> None:
    clock.admit(0, generation([1], 60))
    recorder.until(lambda: len(recorder.tokens(0)) >= 1)
    clock.admit(1, Generation([2], Sampling(temperature=0.7, top_k=3), 3))
    recorder.until(lambda: 1 in recorder.released())
    programs = {report.program for report in recorder.reports if 1 in report.decode or report.prefill_slot == 1}
    assert programs == {"full"}


def test_a_failed_step_releases_every_open_slot_with_the_failure(recorder: Recorder) -> None:
    clock = StepClock(BrokenEngine(fails_at=3), recorder, CountingClock())
    clock.admit(0, generation([1], 50))
    clock.admit(1, generation([1], 50))
    clock.start()
    recorder.until(lambda: any(report.failure for report in recorder.reports))
    clock.stop()
    (failed,) = [report for report in recorder.reports if report.failure]
    assert sorted(failed.released) == [0, 1]


def test_a_generation_that_the_engine_refuses_is_released_alone(recorder: Recorder) -> None:
    clock = StepClock(RefusingEngine(), recorder, CountingClock())
    clock.start()
    clock.admit(0, generation([1], 20))
    clock.admit(1, generation([13], 20))
    recorder.until(lambda: sorted(recorder.released()) == [0, 1])
    clock.stop()
    (refused,) = [report for report in recorder.reports if report.failure]
    assert (refused.released, len(recorder.tokens(0))) == ([1], 20)


def test_stop_ends_the_thread_with_work_still_open(recorder: Recorder) -> None:
    clock = StepClock(engine(step_us=500), recorder, CountingClock())
    clock.start()
    clock.admit(0, generation([1], 60))
    recorder.until(lambda: len(recorder.tokens(0)) >= 1)
    clock.stop()
    assert not clock.alive


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, SLOTS), st.integers(1, 40), st.integers(1, 20), st.booleans()), max_size=20))
def test_whatever_is_admitted_and_cancelled_every_slot_comes_back_exactly_once(
    arrivals: list[tuple[int, int, int, bool]],
) -> None:
    recorder = Recorder()
    clock = StepClock(engine(), recorder, CountingClock())
    clock.start()
    admitted = [0] * (SLOTS + 1)  # the last one is the draft's
    for slot, prompt, tokens, cancel in arrivals:
        recorder.until(lambda: recorder.released().count(slot) == admitted[slot])  # noqa: B023
        clock.admit(slot, generation([1] * prompt, tokens))
        admitted[slot] += 1
        if cancel:
            clock.cancel(slot)
    recorder.until(lambda: all(recorder.released().count(slot) == admitted[slot] for slot in range(SLOTS + 1)))
    clock.stop()
    assert len(recorder.released()) == len(arrivals)


DRAFT = SLOTS  # the engine's own slot


def test_a_draft_is_read_in_quarter_chunks_in_steps_of_its_own(recorder: Recorder) -> None:
    clock = StepClock(engine(), recorder, CountingClock())
    clock.start()
    clock.admit(DRAFT, generation([1] * 20, 1))
    recorder.until(lambda: DRAFT in recorder.released())
    clock.stop()
    assert [report.prefill_tokens for report in recorder.reports] == [2] * 10
    assert {report.prefill_slot for report in recorder.reports} == {DRAFT}


def test_no_step_that_carries_others_carries_the_draft(recorder: Recorder) -> None:
    clock = StepClock(engine(), recorder, CountingClock())
    clock.admit(DRAFT, generation([1] * 20, 1))
    clock.admit(0, generation([1] * 20, 10))
    clock.start()
    recorder.until(lambda: sorted(recorder.released()) == [0, DRAFT])
    clock.stop()
    drafted = [report for report in recorder.reports if report.prefill_slot == DRAFT]
    assert len(drafted) == 10
    assert all(report.decode == () for report in drafted)
    assert recorder.released() == [0, DRAFT]


def test_a_heartbeat_goes_before_a_draft_which_is_then_read_from_the_beginning(recorder: Recorder) -> None:
    programs, now = Programs(), CountingClock()
    heartbeat = Heartbeat(programs, [1, 2], interval_ns=1_000_000)
    clock = StepClock(engine(step_us=1000), recorder, now, programs=programs, heartbeat=heartbeat)
    clock.start()
    before = heartbeat.beats
    clock.admit(DRAFT, generation([1] * 40, 1))
    recorder.until(lambda: len(recorder.reports) >= 2)
    now.leap(1_000_000)
    recorder.until(lambda: DRAFT in recorder.released())
    clock.stop()
    assert heartbeat.beats == before + 1
    assert sum(report.prefill_tokens for report in recorder.reports if report.prefill_slot == DRAFT) > 40
    assert programs.dropped == ()


def test_a_step_that_fails_takes_a_waiting_draft_along(recorder: Recorder) -> None:
    clock = StepClock(BrokenEngine(fails_at=1), recorder, CountingClock())
    clock.admit(0, generation([1], 50))
    clock.admit(DRAFT, generation([1], 1))
    clock.start()
    recorder.until(lambda: any(report.failure for report in recorder.reports))
    clock.stop()
    (failed,) = [report for report in recorder.reports if report.failure]
    assert sorted(failed.released) == [0, DRAFT]
