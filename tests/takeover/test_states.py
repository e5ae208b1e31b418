"""Whatever happens in whatever order: one process serves, never two, never none that could."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.serve.takeover.states import NEW, OLD, Action, Event, New, Old

events = st.lists(st.sampled_from(list(Event)), max_size=30)


def old_side(happened: list[Event]) -> tuple[Old, list[Action]]:
    state, done = Old.GREETING, []
    for event in happened:
        state, action = OLD.get((state, event), (state, Action.NOTHING))
        done.append(action)
    return state, done


@given(events)
def test_the_old_process_stops_reading_only_to_go_on_or_to_hand_over(happened):
    state, done = old_side([*happened, Event.LOST])
    if Action.FREEZE in done:
        assert (Action.RESUME in done) == (state is Old.OVER)
        assert state in (Old.OVER, Old.GONE)


@given(events)
def test_it_says_go_once_at_most_and_only_when_the_new_one_has_everything(happened):
    _, done = old_side(happened)
    assert done.count(Action.GO) <= 1
    if Action.GO in done:
        before = done[: done.index(Action.GO)]
        assert [action for action in before if action is not Action.NOTHING] == [
            Action.WELCOME,
            Action.FREEZE,
            Action.OFFER,
        ]


@given(events)
def test_it_leaves_only_after_go(happened):
    _, done = old_side(happened)
    assert Action.LEAVE not in done or done.index(Action.GO) < done.index(Action.LEAVE)


def test_a_new_process_that_is_lost_gives_the_service_back_from_every_state():
    states = {state for state, _ in OLD} - {Old.OVER, Old.GONE}
    assert {OLD[state, Event.LOST][0] for state in states} == {Old.OVER}


@given(events)
def test_the_new_process_serves_only_when_it_was_told_to_or_nobody_else_can(happened):
    state, seen = New.ASKING, list[Event]()
    for event in happened:
        state, action = NEW.get((state, event), (state, Action.NOTHING))
        seen.append(event)
        if action is Action.SERVE:
            assert event in (Event.GO, Event.DIED)
            assert Event.ESTATE in seen


def test_whatever_else_comes_before_it_serves_is_the_end_of_it():
    for state in (New.ASKING, New.LOADING, New.TAKING, New.READY):
        for event in (Event.REFUSED, Event.UNFIT, Event.LOST):
            assert NEW[state, event] == (New.FAILED, Action.FAIL)
