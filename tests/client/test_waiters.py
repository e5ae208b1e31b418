"""Calls that wait hear of a node that is back, or has free slots: who is woken for it, and what becomes of bookings."""

from __future__ import annotations

from client.calls import MS, World
from client.calls import booked as refused
from zerolayer.client.attempt import Head, Promise, Send, Wait
from zerolayer.client.call import Call
from zerolayer.client.nodes import FRESH_NS, GAIN_NS
from zerolayer.client.retry import RetryPolicy
from zerolayer.client.waiters import Waiters
from zerolayer.wire.load import Load

BACKOFF = RetryPolicy(base_ms=1000, spare=10)
FULL = Load(0, 50_000)  # of the node that is asked first
FULLER = Load(0, 60_000)


def booked(wait_ms: int, ticket: str = "t", load: Load = FULL) -> Head:
    return refused(wait_ms, ticket, load)


class Waiting:
    """Calls that wait in a world of full nodes, of which the first is asked; ``woken`` are their numbers, in order."""

    def __init__(self, *names: str, policy: RetryPolicy | None = None) -> None:
        self.world = World(*names, policy=policy)
        for name in names:
            self.tell(name, FULL if name == names[0] else FULLER, 0)
        self.waiters = Waiters(self.world.nodes)
        self.calls: list[Call] = []
        self.woken: list[int] = []

    def wait(self, head: Head) -> Call:
        """One more, which the first node that it asks refuses with ``head``."""
        call, number = self.world.call(), len(self.calls)
        assert isinstance(call.next(0), Send)
        call.refused(0, 0, 0, head)
        assert isinstance(call.next(0), Wait)
        self.waiters.add(call, lambda: self.woken.append(number))
        self.calls.append(call)
        return call

    def free(self, name: str, slots: int, now_ns: int = 0) -> None:
        """A node says that it has so many free slots."""
        self.tell(name, Load(slots, 0), now_ns)
        self.waiters.look(now_ns)

    def tell(self, name: str, load: Load, now_ns: int) -> None:
        nodes = self.world.nodes
        nodes.sent(name)
        nodes.heard(name, now_ns, load)
        nodes.ended(name)
        nodes[name].ended = 0


def test_the_one_who_would_wait_for_longest_is_woken_and_goes_there() -> None:
    waiting = Waiting("a", "b")
    for number, wait_ms in enumerate((100, 300, 200)):
        waiting.wait(booked(wait_ms, f"t{number}"))
    waiting.free("b", 1)
    assert waiting.woken == [1]
    assert waiting.calls[1].next(0) == Send("b")
    assert waiting.calls[0].next(0) == Wait(100 * MS)


def test_one_is_woken_for_each_slot_and_nobody_twice() -> None:
    waiting = Waiting("a", "b")
    for number in range(4):
        waiting.wait(booked(100 + number, f"t{number}"))
    waiting.free("b", 3)
    waiting.waiters.look(0)
    assert waiting.woken == [3, 2, 1]


def test_nobody_is_woken_where_all_nodes_are_full() -> None:
    waiting = Waiting("a", "b")
    waiting.wait(booked(300))
    waiting.free("b", 0)
    waiting.world.nodes["a"].ended = 3  # whoever is booked there gets those slots
    waiting.waiters.look(0)
    assert waiting.woken == []


def test_who_starts_soon_anyhow_is_not_woken() -> None:
    waiting = Waiting("a", "b")
    waiting.wait(booked(GAIN_NS // MS))
    waiting.free("b", 1)
    assert waiting.woken == []
    waiting.wait(booked(GAIN_NS // MS + 1, "later"))
    waiting.free("b", 1)
    assert waiting.woken == [1]


def test_an_old_word_wakes_nobody() -> None:
    waiting = Waiting("a", "b")
    waiting.wait(booked(5000))
    waiting.tell("b", Load(1, 0), 0)
    waiting.waiters.look(FRESH_NS + 1)
    assert waiting.woken == []


def test_a_booking_is_kept_until_the_call_that_was_woken_is_served() -> None:
    waiting = Waiting("a", "b")
    call = waiting.wait(booked(300, "mine"))
    waiting.free("b", 1)
    assert call.next(0) == Send("b")
    assert call.take_left() == []
    call.began(0, Head(200))
    assert call.take_left() == [Promise("a", 300 * MS, "mine")]


def test_a_call_that_is_woken_in_vain_has_its_booking_still() -> None:
    waiting = Waiting("a", "b")
    call = waiting.wait(booked(300, "mine"))
    waiting.free("b", 1)
    assert call.next(0) == Send("b")
    call.refused(0, 0, 0, booked(900, "worse"))
    assert [left.ticket for left in call.take_left()] == ["worse"]
    assert call.next(0) == Wait(300 * MS)
    assert call.next(300 * MS) == Send("a", "mine")


def test_a_slot_at_the_node_of_the_booking_is_asked_for_with_its_ticket() -> None:
    waiting = Waiting("a", "b")
    call = waiting.wait(booked(300, "mine"))
    waiting.free("a", 1)
    assert call.next(0) == Send("a", "mine")
    call.began(0, Head(200))
    assert call.take_left() == []  # redeemed before its time


def test_a_node_that_tells_the_same_booking_again_is_not_given_it_back() -> None:
    waiting = Waiting("a", "b")
    call = waiting.wait(booked(300, "mine"))
    waiting.free("a", 1)
    call.next(0)
    call.refused(0, 10 * MS, 0, booked(290, "mine"))
    assert call.take_left() == []
    assert call.next(10 * MS) == Wait(300 * MS)


def test_a_node_that_refuses_though_it_says_that_it_is_free_wakes_nobody_for_a_second() -> None:
    waiting = Waiting("a", "b")
    for number in range(3):
        waiting.wait(booked(3000 + number, f"t{number}"))
    waiting.free("b", 1)
    last = waiting.calls[2]
    last.next(0)
    last.refused(0, 0, 0, booked(4000, "other", Load(1, 0)))
    waiting.free("b", 1, FRESH_NS - 1)
    assert waiting.woken == [2]
    waiting.free("b", 1, FRESH_NS)
    assert waiting.woken == [2, 1]


def test_a_node_that_is_back_is_tried_by_one_and_the_others_follow_when_it_answers() -> None:
    waiting = Waiting("a", "b")
    nodes = waiting.world.nodes
    nodes.sent("b")
    nodes.lost("b", 0)
    for number in range(3):
        waiting.wait(booked(1000 + number, f"t{number}"))
    now_ns = 500 * MS
    waiting.waiters.look(now_ns)
    assert waiting.woken == []
    nodes.probed("b", now_ns, lives=True)
    waiting.waiters.look(now_ns)
    waiting.waiters.look(now_ns)
    assert waiting.woken == [2]
    waiting.calls[2].next(now_ns)
    waiting.calls[2].began(now_ns, Head(200, Load(3, 0)))
    waiting.waiters.look(now_ns)
    assert waiting.woken == [2, 1, 0]


def test_a_node_that_comes_is_tried_by_one_who_waits() -> None:
    waiting = Waiting("a", "b")
    waiting.wait(booked(1000, "one"))
    waiting.wait(booked(1001, "two"))
    waiting.world.nodes.update(["a", "b", "new"], 0)
    waiting.waiters.look(0)
    waiting.waiters.look(0)
    assert waiting.woken == [1]
    assert waiting.calls[1].next(0) == Send("new")


def test_a_server_that_says_nothing_of_its_load_wakes_nobody() -> None:
    waiting = Waiting("a", "b")
    nodes = waiting.world.nodes
    nodes.update(["a", "b", "silent"], 0)
    nodes.sent("silent")
    nodes.heard("silent", 0, None)
    nodes.ended("silent")
    waiting.wait(booked(1000))
    waiting.waiters.look(2 * FRESH_NS)
    assert waiting.woken == []


def test_a_backoff_ends_early_too_and_costs_no_more_of_the_budget() -> None:
    waiting = Waiting("a", "b", policy=BACKOFF)
    call = waiting.wait(Head(429, FULL, None, True))
    left = waiting.world.budget._left
    waiting.free("b", 1)
    assert call.next(0) == Send("b")
    assert waiting.world.budget._left == left


def test_what_was_woken_is_counted_and_only_what_was_waited_is_waited() -> None:
    waiting = Waiting("a", "b")
    call = waiting.wait(booked(300))
    waiting.free("b", 1, 100 * MS)
    call.next(100 * MS)
    call.began(100 * MS, Head(200))
    assert (call.attempts.woken, call.attempts.waited_ms) == (1, 100.0)
    assert waiting.world.tally.statistics().woken == 1


def test_elsewhere_a_call_that_holds_a_booking_is_one_that_has_just_come() -> None:
    """Who has waited is taken for the sender of an equal request, whose booking it would be given."""
    waiting = Waiting("a", "b")
    call = waiting.wait(booked(300, "mine"))
    waiting.free("b", 1)
    call.next(0)
    assert (call.attempts.waits, call.told_waits) == (1, 0)
    call.refused(0, 0, 0, booked(900, "worse"))
    call.next(300 * MS)
    assert call.told_waits == call.attempts.waits == 2


def test_a_caller_who_leaves_when_woken_leaves_no_request_behind() -> None:
    waiting = Waiting("a", "b")
    call = waiting.wait(booked(300, "mine"))
    waiting.free("b", 1)
    call.left()
    assert (waiting.world.nodes["b"].unheard, waiting.world.nodes["b"].running) == (0, 0)
    assert [left.ticket for left in call.take_left()] == ["mine"]


def test_nobody_is_woken_beyond_the_deadline_or_before_it_waits() -> None:
    world = World("a")
    call = world.call(end_ns=100 * MS)
    assert not call.wake(0, "a")
    call.next(0)
    call.refused(0, 0, 0, booked(100))
    assert not call.wake(101 * MS, "a")
    assert call.wake(50 * MS, "a")
