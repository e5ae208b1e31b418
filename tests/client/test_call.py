"""The attempts of one call: every step of the state machine, on a clock that the test moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from client.calls import BUSY, END, MS, World, booked
from zerolayer.client.attempt import GiveUp, Head, Send, Wait
from zerolayer.client.retry import RetryPolicy
from zerolayer.wire.load import Load


def test_a_booked_start_is_kept_to_the_millisecond_with_its_ticket() -> None:
    call = World("a").call()
    assert call.next(0) == Send("a")
    call.refused(0, 0, 0, booked(120))
    assert call.next(0) == Wait(120 * MS)
    assert call.next(120 * MS - 1) == Wait(120 * MS)
    assert call.next(120 * MS) == Send("a", "t")
    assert call.attempts.booked == 1


def test_bookings_are_not_drawn_from_the_budget() -> None:
    world = World("a", policy=RetryPolicy(spare=0, share=0))
    call, now = world.call(), 0
    for _ in range(20):
        assert isinstance(call.next(now), Send)
        call.refused(now, now, 0, booked(10))
        now += 10 * MS
    assert isinstance(call.next(now), Send)


def test_a_booking_after_the_deadline_is_given_up_at_once() -> None:
    call = World("a").call(end_ns=100 * MS)
    call.next(0)
    call.refused(0, 0, 0, booked(101))
    assert call.next(0) is GiveUp.DEADLINE


def test_a_refusal_without_a_booking_backs_off_exponentially() -> None:
    call, now, waits = World("a").call(), 0, []
    for _ in range(4):
        assert isinstance(call.next(now), Send)
        call.refused(now, now, 0, Head(429, load=BUSY))
        step = call.next(now)
        assert isinstance(step, Wait)
        waits.append((step.until_ns - now) // MS)
        now = step.until_ns
    assert waits == [25, 50, 100, 200]


def test_a_time_that_is_not_booked_is_spread_by_chance() -> None:
    call = World("a").call()
    call.next(0)
    call.refused(0, 0, 0, Head(429, load=BUSY, wait_ms=100))
    assert call.next(0) == Wait(125 * MS)


def test_backing_off_ends_with_the_budget() -> None:
    world = World("a", policy=RetryPolicy(spare=1, share=0))
    first, second = world.call(), world.call()
    for call in (first, second):
        call.next(0)
        call.refused(0, 0, 0, Head(429, load=BUSY))
    assert isinstance(first.next(0), Wait)
    assert second.next(0) is GiveUp.BUDGET
    assert world.tally.statistics().out_of_budget == 1


def test_a_request_that_is_wrong_is_not_sent_again() -> None:
    world = World("a", "b")
    call = world.call()
    call.next(0)
    call.refused(0, 0, 0, Head(400))
    assert call.next(0) is GiveUp.FINAL


def test_a_server_error_may_have_begun_to_work_and_is_not_sent_again() -> None:
    call = World("a", "b").call()
    call.next(0)
    call.refused(0, 0, 0, Head(502))
    assert call.next(0) is GiveUp.FINAL


def test_a_refused_request_takes_the_slot_of_another_node() -> None:
    world = World("a", "b")
    call = world.call()
    first = call.next(0)
    assert isinstance(first, Send)
    call.refused(0, 0, 0, booked(500))
    second = call.next(0)
    assert isinstance(second, Send)
    assert {first.node, second.node} == {"a", "b"}


def test_the_earlier_booking_of_two_is_taken() -> None:
    world = World("a", "b")
    call = world.call()
    call.next(0)
    call.refused(0, 0, 0, booked(500, "late"))
    second = call.next(0)
    assert isinstance(second, Send)
    call.refused(0, 0, 0, booked(200, "early"))
    assert call.next(0) == Wait(200 * MS)
    assert call.next(200 * MS) == Send(second.node, "early")


def test_a_later_booking_does_not_replace_an_earlier_one() -> None:
    call = World("a", "b").call()
    first = call.next(0)
    assert isinstance(first, Send)
    call.refused(0, 0, 0, booked(200, "early"))
    call.next(0)
    call.refused(0, 0, 0, booked(500, "late"))
    assert call.next(200 * MS) == Send(first.node, "early")


def test_a_node_beyond_its_horizon_does_not_end_a_call_that_another_may_serve() -> None:
    call = World("a", "b").call()
    first = call.next(0)
    call.refused(0, 0, 0, Head(429, load=BUSY, retry=False))
    second = call.next(0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert first.node != second.node


def test_a_draining_node_hands_over_at_once_and_is_left_out() -> None:
    world = World("a", "b")
    call = world.call()
    first = call.next(0)
    assert isinstance(first, Send)
    call.refused(0, 0, 0, Head(503, load=BUSY, wait_ms=1000, retry=True))
    second = call.next(0)
    assert isinstance(second, Send)
    assert second.node != first.node
    assert not world.nodes[first.node].usable(999 * MS)


def test_a_node_where_nothing_listens_costs_no_budget() -> None:
    world = World("a", "b", policy=RetryPolicy(spare=0, share=0))
    call = world.call()
    first = call.next(0)
    call.unreachable(0, sent=False)
    second = call.next(0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert first.node != second.node


def test_addresses_where_nothing_ever_answered_are_not_tried_for_long() -> None:
    call = World("a", "b").call()
    for _ in range(2):
        assert isinstance(call.next(0), Send)
        call.unreachable(0, sent=False)
    assert call.next(0) is GiveUp.FINAL


def test_known_nodes_that_are_all_down_are_tried_until_the_deadline() -> None:
    world = World("a", "b")
    world.busy("a")
    call, now, asked = world.call(end_ns=5000 * MS), 0, 0
    while (step := call.next(now)) is not GiveUp.DEADLINE:
        if isinstance(step, Wait):
            now = step.until_ns
        else:
            asked += 1
            call.unreachable(now, sent=False)
    assert 4000 * MS <= now <= 5000 * MS
    assert asked >= 10


def test_an_only_server_that_is_down_is_told_at_once() -> None:
    world = World("a")
    world.busy("a")
    call = world.call()
    call.next(0)
    call.unreachable(0, sent=False)
    assert call.next(0) is GiveUp.FINAL
    assert isinstance(world.call().next(0), Send)  # and the next call asks again, without a pause


def test_a_request_that_may_have_run_is_sent_again_only_where_that_is_counted() -> None:
    world = World("a", "b")
    call = world.call()
    call.next(0)
    call.unreachable(0, sent=True)
    assert isinstance(call.next(0), Send)
    call.began(0, Head(200))
    assert call.attempts.unanswered == world.tally.statistics().unanswered == 1


def test_replaying_what_may_have_run_can_be_forbidden() -> None:
    call = World("a", "b", policy=RetryPolicy(replay_unanswered=False)).call()
    call.next(0)
    call.unreachable(0, sent=True)
    assert call.next(0) is GiveUp.FINAL


def test_statistics_say_whether_retrying_helped() -> None:
    world = World("a")
    for answered in (True, False):
        call = world.call()
        call.next(0)
        call.refused(0, 0, 0, booked(10))
        call.next(10 * MS)
        if answered:
            call.began(10 * MS, Head(200))
            call.ended()
        else:
            call.refused(10 * MS, 10 * MS, 0, Head(400))
    statistics = world.tally.statistics()
    assert (statistics.calls, statistics.answered, statistics.failed) == (2, 1, 1)
    assert (statistics.retried, statistics.rescued, statistics.retrying_helped) == (2, 1, 0.5)


EVENTS = st.sampled_from(["answer", "booked", "hint", "busy", "wrong", "beyond", "draining", "refused", "broken"])


@given(st.lists(st.tuples(EVENTS, st.integers(0, 3000)), max_size=40), st.integers(1, 3))
def test_every_call_ends_within_its_deadline_and_leaves_nothing_behind(events, count) -> None:
    world = World(*"abc"[:count])
    call, now, left = world.call(), 0, list(events)
    heads = {
        "booked": lambda ms: booked(max(1, ms)),
        "hint": lambda ms: Head(429, load=BUSY, wait_ms=max(1, ms)),
        "busy": lambda _: Head(429),
        "wrong": lambda _: Head(400),
        "beyond": lambda _: Head(429, retry=False),
        "draining": lambda ms: Head(503, wait_ms=max(1, ms)),
    }
    while not isinstance(step := call.next(now), GiveUp):
        if isinstance(step, Wait):
            assert now < step.until_ns <= END
            now = step.until_ns
            continue
        event, ms = left.pop() if left else ("answer", 0)
        if event == "answer":
            call.began(now, Head(200, load=Load(1, 0)))
            call.ended()
            break
        if event in heads:
            call.refused(now, now, 0, heads[event](ms))
        else:
            call.unreachable(now, sent=event == "broken")
    assert now <= END
    assert all(world.nodes[name].running == world.nodes[name].unheard == 0 for name in "abc"[:count])
    statistics = world.tally.statistics()
    assert statistics.answered + statistics.failed == statistics.calls == 1


@given(st.integers(1, 5_000), st.integers(0, 400))
def test_no_chance_ends_a_call_that_has_time_left(deadline_ms: int, hint_ms: int) -> None:
    world = World("a", policy=RetryPolicy(spare=100))
    call, now, asked = world.call(end_ns=deadline_ms * MS), 0, 0
    while (step := call.next(now)) is not GiveUp.DEADLINE:
        if isinstance(step, Wait):
            now = step.until_ns
            continue
        asked += 1
        call.refused(now, now, 0, Head(429, load=BUSY, wait_ms=hint_ms, retry=True))
    assert deadline_ms - now / MS < hint_ms + world.policy.base_ms
    assert asked < 40
