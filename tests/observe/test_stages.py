"""The nine stages partition a request's time exactly, whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.stages import STAGE_NAMES, Stage, StageClock

# Marks and steps in any order, at times that may even run backwards a little (two threads read the clock).
TIMES = st.integers(0, 10**9)
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("mark"), st.sampled_from(list(Stage)), TIMES),
        st.tuples(st.just("step"), TIMES, TIMES),
        st.tuples(st.just("token"), st.none(), st.none()),
    )
)


def _do(clock: StageClock, deeds) -> None:
    for deed, first, second in deeds:
        if deed == "mark":
            clock.mark(first, second)
        elif deed == "step":
            clock.step(min(first, second), max(first, second))
        else:
            clock.first_token()


@given(TIMES, DEEDS)
def test_stages_sum_to_the_elapsed_time_exactly(first_byte, deeds):
    clock = StageClock(first_byte)
    _do(clock, deeds)
    assert sum(clock.spent_ns()) == clock.elapsed_ns
    assert min(clock.spent_ns()) >= 0


@given(TIMES, DEEDS)
def test_microseconds_sum_to_the_whole_rounded_down(first_byte, deeds):
    clock = StageClock(first_byte)
    _do(clock, deeds)
    told = clock.spent_us()
    assert tuple(told) == STAGE_NAMES
    assert sum(told.values()) == clock.elapsed_ns // 1000
    assert min(told.values()) >= 0


def test_one_request_from_first_byte_to_last():
    clock = StageClock(100)
    clock.mark(Stage.READ, 110)
    clock.mark(Stage.PARSE, 130)
    clock.mark(Stage.GUARD, 135)
    clock.mark(Stage.TOKENISE, 165)
    clock.step(200, 300)  # mailbox and step border before it
    clock.step(310, 400)
    clock.first_token()
    clock.step(405, 500)
    clock.mark(Stage.FRAME, 520)
    clock.mark(Stage.WRITE, 521)
    assert clock.spent_ns() == (10, 20, 5, 30, 50, 190, 95, 20, 1)


def test_work_that_overlaps_a_running_step_belongs_to_the_step():
    clock = StageClock(0)
    clock.mark(Stage.TOKENISE, 50)
    clock.step(40, 90)
    assert clock.spent_ns()[Stage.PREFILL] == 40
    assert clock.spent_ns()[Stage.WAIT] == 0


@pytest.fixture
def meter() -> GlueMeter:
    return GlueMeter()


def test_a_server_that_was_never_busy_has_no_share(meter):
    assert meter.share(100) is None


def test_busy_time_outside_steps_is_glue(meter):
    meter.enter(100)
    meter.step(120, 180)
    meter.leave(200)
    assert meter.share(10_000) == pytest.approx(0.4)


def test_overlapping_requests_are_busy_once(meter):
    meter.enter(100)
    meter.enter(150)
    meter.leave(200)
    meter.leave(300)
    assert meter.busy_ns(1000) == 200


def test_idle_time_between_requests_is_not_busy(meter):
    for start in (0, 1000):
        meter.enter(start)
        meter.leave(start + 100)
    assert meter.busy_ns(5000) == 200


def test_a_step_that_outlives_its_request_counts_only_while_busy(meter):
    meter.enter(0)
    meter.leave(100)
    meter.step(50, 400)
    assert meter.share(1000) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=60))
def test_the_share_stays_between_none_and_all(deeds):
    meter, now, in_flight = GlueMeter(), 0, 0
    for entering, passed in deeds:
        before, now = now, now + passed
        meter.step(before, now)
        if entering:
            meter.enter(now)
            in_flight += 1
        elif in_flight:
            meter.leave(now)
            in_flight -= 1
    share = meter.share(now)
    assert share is None or 0.0 <= share <= 1.0
