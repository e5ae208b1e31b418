"""Heartbeats: known inputs in turn, and what happens when an output is not the known one."""

from __future__ import annotations

import time

import pytest

from zerolayer.errors import EngineFailed, StartupError
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.heartbeat import Heartbeat, Outcome
from zerolayer.model.letters import StepReport
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.program import FULL, GREEDY, PLAIN, Named, Programs
from zerolayer.model.step_clock import StepClock
from zerolayer.wire.schema import Sampling

INTERVAL = 1000


def beat(heartbeat: Heartbeat, tokens: list[int], now_ns: int = 0) -> str:
    name, _ = heartbeat.begin()
    for token_id in tokens:
        heartbeat.token(SampledToken(0, token_id))
    heartbeat.end(now_ns)
    return name


@pytest.fixture
def programs() -> Programs:
    return Programs([Named("chat", 0.7, 0.9, 0, 1.0)])


@pytest.fixture
def heartbeat(programs: Programs) -> Heartbeat:
    """After its first round, in which every program said 1, 2, 3."""
    heartbeat = Heartbeat(programs, [5, 6, 7], INTERVAL)
    while not heartbeat.expects_all:
        beat(heartbeat, [1, 2, 3])
    return heartbeat


def test_the_first_round_beats_every_program_at_once(programs: Programs) -> None:
    heartbeat = Heartbeat(programs, [5], INTERVAL)
    names = []
    while not heartbeat.expects_all:
        assert heartbeat.due_ns == 0
        names.append(beat(heartbeat, [1], now_ns=7))
    assert sorted(names) == sorted(programs.names)


def test_after_the_first_round_the_next_beat_is_an_interval_away(heartbeat: Heartbeat) -> None:
    beat(heartbeat, [1, 2, 3], now_ns=500)
    assert heartbeat.due_ns == 500 + INTERVAL


def test_a_beat_runs_on_its_own_programs_parameters(programs: Programs) -> None:
    heartbeat = Heartbeat(programs, [5], INTERVAL)
    for _ in programs.names:
        name, generation = heartbeat.begin()
        assert programs.of(generation.sampling) == name
        heartbeat.end(0)


def test_a_beat_is_never_kept_as_a_prefix(heartbeat: Heartbeat) -> None:
    assert not heartbeat.begin()[1].keep


def test_the_known_output_keeps_a_program(programs: Programs, heartbeat: Heartbeat) -> None:
    beat(heartbeat, [1, 2, 3])
    assert programs.dropped == ()


def test_another_output_drops_the_program_for_the_fallback(programs: Programs, heartbeat: Heartbeat) -> None:
    name = beat(heartbeat, [1, 2, 4])
    assert programs.dropped == (name,)
    assert programs.of(programs.sampling(name)) == FULL


def test_a_wrong_output_of_the_fallback_means_that_nothing_can_be_trusted(heartbeat: Heartbeat) -> None:
    while beat(heartbeat, [1, 2, 3]) != PLAIN:
        pass
    heartbeat.outcomes.clear()
    assert beat(heartbeat, [9]) == FULL
    assert list(heartbeat.outcomes) == [Outcome.WRONG]


def test_a_step_that_failed_for_all_says_nothing_of_the_program(programs: Programs, heartbeat: Heartbeat) -> None:
    heartbeat.begin()
    heartbeat.outcomes.clear()
    heartbeat.missed(100)
    assert programs.dropped == ()
    assert list(heartbeat.outcomes) == [Outcome.MISSED]


def test_after_a_miss_the_next_beat_comes_soon_but_not_at_once(heartbeat: Heartbeat) -> None:
    heartbeat.missed(100)
    assert heartbeat.due_ns == 100 + 100_000_000
    heartbeat.hasten()
    assert heartbeat.due_ns == 0


def test_a_program_that_fails_has_the_next_one_tried_at_once(heartbeat: Heartbeat) -> None:
    beat(heartbeat, [9], now_ns=500)
    assert heartbeat.due_ns == 0


class Wrong(MockEngine):
    """Answers greedy generations wrongly once ``wrong`` is set."""

    wrong = False

    def __init__(self) -> None:
        super().__init__(slots=2, slot_tokens=64, chunk_tokens=8, step_us=0, vocabulary=100)
        self.greedy: set[int] = set()

    def open(self, slot: int, generation: Generation) -> None:
        super().open(slot, generation)
        if generation.sampling.temperature == 0.0:
            self.greedy.add(slot)

    def close(self, slot: int) -> None:
        self.greedy.discard(slot)
        super().close(slot)

    def step(self, plan: StepPlan) -> list[SampledToken]:
        tokens = super().step(plan)
        if not self.wrong:
            return tokens
        return [
            SampledToken(token.slot, 99 - token.token_id, token.finish) if token.slot in self.greedy else token
            for token in tokens
        ]


class Failing(MockEngine):
    """Fails at its first ``fails`` steps."""

    def __init__(self, fails: int) -> None:
        super().__init__(slots=2, slot_tokens=64, chunk_tokens=8, step_us=0, vocabulary=100)
        self.fails = fails

    def step(self, plan: StepPlan) -> list[SampledToken]:
        self.fails -= 1
        if self.fails >= 0:
            raise EngineFailed("broken on purpose")
        return super().step(plan)


def starting(fails: int, programs: Programs) -> StepClock:
    heartbeat = Heartbeat(programs, [1, 2], INTERVAL)
    return StepClock(Failing(fails), [].append, time.monotonic_ns, programs=programs, heartbeat=heartbeat)


def test_an_engine_that_fails_again_and_again_before_the_first_request_does_not_start(programs: Programs) -> None:
    with pytest.raises(StartupError, match="3 of its first 3 generations"):
        starting(3, programs).start()


def test_an_engine_that_failed_twice_and_then_works_starts(programs: Programs) -> None:
    clock = starting(2, programs)
    clock.start()
    clock.stop()
    assert programs.dropped == ()


def test_the_step_clock_beats_while_idle_and_tells_of_its_steps_alone(programs: Programs) -> None:
    """Those before the start are told to nobody: nobody listens yet."""
    reports: list[StepReport] = []
    heartbeat = Heartbeat(programs, [1, 2], interval_ns=1_000_000)
    clock = StepClock(Wrong(), reports.append, time.monotonic_ns, programs=programs, heartbeat=heartbeat)
    clock.prove()
    assert reports == []
    before = heartbeat.beats
    clock.start()
    deadline = time.monotonic() + 30
    while heartbeat.beats < before + 20 and time.monotonic() < deadline:
        time.sleep(0.001)
    clock.stop()
    assert not any(report.concerns for report in reports)
    assert not any(report.tokens for report in reports)
    assert all(report.beats and report.ended_ns > report.started_ns for report in reports)
    whole, begun = divmod(len(reports), 3)  # the prompt and its first token, then a token a step
    assert (whole, begun < 3) == (heartbeat.beats - before, True)
    assert [report.beat_rows for report in reports[:3]] == [0, 1, 1]


def test_the_step_clock_runs_a_dropped_programs_requests_on_the_fallback(programs: Programs) -> None:
    reports: list[StepReport] = []
    heartbeat = Heartbeat(programs, [1, 2], interval_ns=100_000)
    engine = Wrong()
    clock = StepClock(engine, reports.append, time.monotonic_ns, programs=programs, heartbeat=heartbeat)
    clock.start()
    engine.wrong = True
    deadline = time.monotonic() + 30
    while programs.dropped != (GREEDY,) and time.monotonic() < deadline:
        time.sleep(0.001)
    clock.admit(0, Generation([1], Sampling(temperature=0.0), 3))
    while not any(report.released for report in reports) and time.monotonic() < deadline:
        time.sleep(0.001)
    clock.stop()
    assert {report.program for report in reports if report.concerns} == {FULL}


def test_a_beat_among_requests_changes_nothing_for_them(programs: Programs) -> None:
    reports: list[StepReport] = []
    heartbeat = Heartbeat(programs, [1, 2], interval_ns=1)
    clock = StepClock(Wrong(), reports.append, time.monotonic_ns, programs=programs, heartbeat=heartbeat)
    clock.start()
    clock.admit(1, Generation([3, 4], Sampling(temperature=0.0), 40))
    deadline = time.monotonic() + 30
    while not any(report.released for report in reports) and time.monotonic() < deadline:
        time.sleep(0.001)
    clock.stop()
    assert len([token for report in reports for token in report.tokens]) == 40
    assert {slot for report in reports for slot in (*report.decode, *report.released)} == {1}
    faults = [report.faults for report in reports]  # of the thread, so far
    assert (faults, faults[0] > 0) == (sorted(faults), True)
