"""A call that goes on at another node: bookings given back there, hedges won and lost."""

from __future__ import annotations

from client.calls import MS, World, booked
from zerolayer.client.attempt import GiveUp, Head, Send, Wait
from zerolayer.client.retry import RetryPolicy
from zerolayer.wire.load import Load


def test_another_nodes_earlier_booking_is_taken_and_the_own_one_given_back() -> None:
    world = World("a", "b")
    for name, next_ms in (("a", 100), ("b", 300)):
        world.nodes.sent(name)
        world.nodes.heard(name, 0, Load(0, next_ms))
    call = world.call()
    assert call.next(0) == Send("a")  # which said that it starts sooner
    call.refused(0, 0, 0, booked(900, "own", Load(0, 900)))
    assert call.next(0) == Send("b")  # nothing is free there, yet it starts before that
    call.refused(0, 0, 0, booked(300, "earlier", Load(0, 300)))
    assert [(left.node, left.ticket) for left in call.take_left()] == [("a", "own")]
    assert call.next(0) == Wait(300 * MS)
    assert call.next(300 * MS) == Send("b", "earlier")


def test_a_later_booking_that_was_offered_elsewhere_is_given_back() -> None:
    call = World("a", "b").call()
    call.next(0)
    call.refused(0, 0, 0, booked(200, "early"))
    second = call.next(0)
    call.refused(0, 0, 0, booked(500, "late"))
    assert [(left.node, left.ticket) for left in call.take_left()] == [(second.node, "late")]
    assert call.take_left() == []


def test_a_booking_is_given_back_when_another_node_starts_at_once() -> None:
    call = World("a", "b").call()
    call.next(0)
    call.refused(0, 0, 0, booked(200, "own"))
    call.next(0)
    call.began(0, Head(200))
    assert [left.ticket for left in call.take_left()] == ["own"]


def test_a_booking_that_comes_too_late_is_given_back() -> None:
    call = World("a").call(end_ns=100 * MS)
    call.next(0)
    call.refused(0, 0, 0, booked(101))
    assert call.next(0) is GiveUp.DEADLINE
    assert [left.ticket for left in call.take_left()] == ["t"]


def test_whoever_leaves_while_waiting_gives_the_booking_back() -> None:
    call = World("a").call()
    call.next(0)
    call.refused(0, 0, 0, booked(50))
    call.left()
    assert [left.ticket for left in call.take_left()] == ["t"]


def test_a_redeemed_booking_is_not_given_back() -> None:
    call = World("a").call()
    call.next(0)
    call.refused(0, 0, 0, booked(50))
    assert call.next(50 * MS) == Send("a", "t")
    call.began(50 * MS, Head(200))
    assert call.take_left() == []


def test_a_hedge_that_wins_is_the_answer_and_the_first_request_is_let_go() -> None:
    world = World("a", "b")
    call = world.call()
    first = call.next(0)
    second = call.hedge(0)
    assert {first.node, second.node} == {"a", "b"}
    call.hedge_won(None)
    call.began(0, Head(200))
    call.hedge_lost()
    assert (call.attempts.answered_by, call.attempts.hedged) == (second.node, 1)
    call.ended()
    assert all(world.nodes[name].running == world.nodes[name].unheard == 0 for name in "ab")
    statistics = world.tally.statistics()
    assert (statistics.hedged, statistics.hedges_won, statistics.retried) == (1, 1, 0)


def test_a_hedge_that_loses_leaves_nothing_behind() -> None:
    world = World("a", "b")
    call = world.call()
    first = call.next(0)
    call.hedge(0)
    call.hedge_lost()
    call.began(0, Head(200))
    call.ended()
    assert call.attempts.answered_by == first.node
    assert all(world.nodes[name].running == world.nodes[name].unheard == 0 for name in "ab")
    assert world.tally.statistics().hedges_won == 0


def test_a_hedge_that_is_refused_gives_its_booking_back_and_the_call_goes_on() -> None:
    world = World("a", "b")
    call = world.call()
    first = call.next(0)
    second = call.hedge(0)
    call.hedge_failed(0, booked(100, "unwanted"))
    assert [(left.node, left.ticket) for left in call.take_left()] == [(second.node, "unwanted")]
    call.began(0, Head(200))
    assert call.attempts.answered_by == first.node


def test_hedges_are_drawn_from_the_budget_and_go_to_free_nodes_only() -> None:
    poor = World("a", "b", policy=RetryPolicy(spare=0, share=0))
    call = poor.call()
    call.next(0)
    assert call.hedge(0) is None
    busy = World("a", "b")
    for name in "ab":
        busy.busy(name)
    call = busy.call()
    call.next(0)
    assert call.hedge(0) is None
