"""When a node is started again, and when it is given up; on a fake clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.serve.child import (
    FIRST_PAUSE_NS,
    HEALTHY_NS,
    LONGEST_PAUSE_NS,
    SILENCE_NS,
    Action,
    Child,
    Event,
    State,
)


@pytest.fixture
def ready() -> Child:
    """A child that became ready at 0."""
    child = Child()
    for event in (Event.DUE, Event.TOLD_READY):
        child.take(event, 0)
    return child


def fail(child: Child, now_ns: int) -> int:
    """Start it, let it end at once; the pause that follows."""
    child.take(Event.DUE, now_ns)
    assert child.take(Event.EXITED, now_ns) is Action.PAUSE
    return child.due_ns - now_ns


def test_a_new_child_is_started_at_once() -> None:
    child = Child()
    assert child.look(0) is Event.DUE
    assert child.take(Event.DUE, 0) is Action.START


def test_pauses_double_up_to_the_longest() -> None:
    child, now_ns, pauses = Child(), 0, []
    for _ in range(12):
        pauses.append(fail(child, now_ns))
        now_ns = child.due_ns
    assert pauses[:3] == [FIRST_PAUSE_NS, 2 * FIRST_PAUSE_NS, 4 * FIRST_PAUSE_NS]
    assert pauses[-1] == LONGEST_PAUSE_NS


def test_it_is_not_started_before_its_pause_is_over() -> None:
    child = Child()
    fail(child, 0)
    assert child.look(child.due_ns - 1) is None
    assert child.look(child.due_ns) is Event.DUE


def test_a_minute_in_health_makes_it_new(ready) -> None:
    ready._failures = 9
    ready.take(Event.EXITED, HEALTHY_NS)
    assert ready.due_ns - HEALTHY_NS == FIRST_PAUSE_NS


def test_one_that_is_ready_for_a_moment_only_is_not_new(ready) -> None:
    ready._failures = 1
    ready.take(Event.EXITED, HEALTHY_NS - 1)
    assert ready.due_ns - (HEALTHY_NS - 1) == 2 * FIRST_PAUSE_NS


def test_silence_is_death_for_one_that_was_ready(ready) -> None:
    assert ready.look(SILENCE_NS - 1) is None
    assert ready.look(SILENCE_NS) is Event.SILENT
    assert ready.take(Event.SILENT, SILENCE_NS) is Action.KILL
    assert ready.take(Event.EXITED, SILENCE_NS) is Action.PAUSE


def test_a_sign_of_life_is_enough(ready) -> None:
    ready.alive(SILENCE_NS - 1)
    assert ready.look(2 * SILENCE_NS - 2) is None


def test_one_that_starts_may_take_as_long_as_its_model_needs() -> None:
    child = Child()
    child.take(Event.DUE, 0)
    assert child.look(100 * SILENCE_NS) is None


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_whatever_happens_one_that_was_told_to_stop_ends_and_is_never_started_again(events) -> None:
    child = Child()
    for event in events:
        child.take(event, 0)
    child.take(Event.STOP, 0)
    assert Action.START not in [child.take(event, 0) for event in [*events, Event.EXITED, Event.DUE]]
    assert child.state is State.GONE


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_there_is_one_process_at_most(events) -> None:
    child, processes = Child(), 0
    for event in events:
        if event is Event.EXITED:
            if processes == 0:
                continue  # nobody can
            processes -= 1
        processes += child.take(event, 0) is Action.START
        assert processes in (0, 1)
