"""A node that says that a request cannot be done in time there, however idle it is: what it says is about itself."""

from __future__ import annotations

from client.test_call import BUSY, MS, World, booked
from zerolayer.client.attempt import GiveUp, Head, Send
from zerolayer.wire.load import Load

TOO_SLOW = Head(422, load=Load(4, 0), retry=False)


def test_one_other_node_is_asked_which_may_be_faster() -> None:
    call = World("a", "b", "c").call()
    first = call.next(0)
    call.refused(0, 0, 0, TOO_SLOW)
    second = call.next(0)
    assert isinstance(second, Send)
    assert second != first
    assert call.attempts.moved == 1


def test_two_who_say_so_are_believed() -> None:
    call = World("a", "b", "c").call()
    for _ in range(2):
        call.next(0)
        call.refused(0, 0, 0, TOO_SLOW)
    assert call.next(0) is GiveUp.FINAL


def test_a_node_that_is_alone_is_believed_at_once() -> None:
    call = World("a").call()
    call.next(0)
    call.refused(0, 0, 0, TOO_SLOW)
    assert call.next(0) is GiveUp.FINAL


def test_a_booking_elsewhere_is_kept() -> None:
    world = World("a", "b")
    call = world.call()
    first = call.next(0)
    call.refused(0, 0, 0, booked(500, "t", BUSY))
    assert isinstance(call.next(0), Send)  # the other one was never asked, and may be free
    call.refused(0, 0, 0, TOO_SLOW)
    assert call.next(500 * MS) == Send(first.node, "t")
