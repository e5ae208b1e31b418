"""When a device gets no more requests, and how it returns; on a fake clock."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.model.quarantine import (
    APART_NS,
    FIRST_PAUSE_NS,
    LONGEST_PAUSE_NS,
    RETURNS,
    TABLE,
    Action,
    Event,
    Quarantine,
    State,
)

PROGRAMS = 3
S = 1_000_000_000


@pytest.fixture
def quarantined() -> Quarantine:
    """Since 0."""
    quarantine = Quarantine()
    assert quarantine.wrong(0) is Action.CLOSE
    return quarantine


@pytest.fixture
def half_open(quarantined: Quarantine) -> Quarantine:
    assert quarantined.look(FIRST_PAUSE_NS) is Action.PROBE
    return quarantined


def test_every_state_knows_what_every_event_makes_of_it() -> None:
    assert set(TABLE) == set(product(State, Event))


def test_one_miss_is_probed_and_nothing_more() -> None:
    quarantine = Quarantine()
    assert quarantine.missed(0) is Action.PROBE
    assert not quarantine.closed


def test_three_misses_in_a_row_close() -> None:
    quarantine = Quarantine()
    assert [quarantine.missed(number * S) for number in range(3)] == [Action.PROBE, Action.PROBE, Action.CLOSE]
    assert quarantine.closed


def test_a_right_output_between_them_begins_anew() -> None:
    quarantine = Quarantine()
    for now_ns in (0, 1 * S):
        quarantine.missed(now_ns)
    quarantine.right(2 * S, PROGRAMS)
    assert [quarantine.missed(number * S) for number in (3, 4)] == [Action.PROBE, Action.PROBE]


def test_what_fails_at_once_is_one_miss() -> None:
    quarantine = Quarantine()
    for _ in range(9):
        quarantine.missed(0)
    quarantine.missed(APART_NS - 1)
    assert not quarantine.closed
    assert quarantine.missed(APART_NS) is Action.PROBE


def test_one_wrong_output_closes(quarantined: Quarantine) -> None:
    assert quarantined.state is State.QUARANTINED


def test_nothing_is_tried_before_the_pause_is_over(quarantined: Quarantine) -> None:
    assert quarantined.look(FIRST_PAUSE_NS - 1) is Action.NOTHING
    assert quarantined.right(FIRST_PAUSE_NS - 1, 1) is Action.NOTHING
    assert quarantined.look(FIRST_PAUSE_NS) is Action.PROBE


def test_it_returns_when_every_program_gave_its_known_output(half_open: Quarantine) -> None:
    actions = [half_open.right(S, PROGRAMS) for _ in range(PROGRAMS)]
    assert actions == [Action.PROBE, Action.PROBE, Action.OPEN]
    assert not half_open.closed


@pytest.mark.parametrize("fault", ["missed", "wrong"])
def test_one_fault_on_the_way_back_ends_the_attempt_and_doubles_the_pause(half_open: Quarantine, fault) -> None:
    half_open.right(S, PROGRAMS)
    getattr(half_open, fault)(S)
    assert half_open.state is State.QUARANTINED
    assert half_open.look(S + 2 * FIRST_PAUSE_NS - 1) is Action.NOTHING
    assert half_open.look(S + 2 * FIRST_PAUSE_NS) is Action.PROBE
    assert [half_open.right(4 * S, PROGRAMS) for _ in range(PROGRAMS)][-1] is Action.OPEN


def test_after_eight_failed_returns_it_is_hopeless(quarantined: Quarantine) -> None:
    now_ns, pauses = 0, []
    while not quarantined.hopeless:
        pauses.append(quarantined._due_ns - now_ns)
        now_ns = quarantined._due_ns
        quarantined.look(now_ns)
        quarantined.wrong(now_ns)
    assert len(pauses) == RETURNS
    assert pauses == [min(LONGEST_PAUSE_NS, FIRST_PAUSE_NS << number) for number in range(RETURNS)]


def test_a_return_forgets_the_failed_ones(half_open: Quarantine) -> None:
    half_open.wrong(S)
    half_open.look(10 * S)
    for _ in range(PROGRAMS):
        half_open.right(10 * S, PROGRAMS)
    half_open.wrong(20 * S)
    assert half_open.look(20 * S + FIRST_PAUSE_NS) is Action.PROBE


@given(st.lists(st.sampled_from(["right", "missed", "wrong", "look"]), max_size=60))
def test_requests_are_let_in_again_only_after_as_many_right_outputs_as_there_are_programs(events) -> None:
    quarantine, now_ns, rights = Quarantine(), 0, 0
    for event in events:
        now_ns += S
        closed = quarantine.closed
        given_args = (now_ns, PROGRAMS) if event == "right" else (now_ns,)
        getattr(quarantine, event)(*given_args)
        rights = rights + 1 if event == "right" and closed else rights * (event == "look")
        if closed and not quarantine.closed:
            assert rights >= PROGRAMS
