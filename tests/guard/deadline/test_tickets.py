"""Which request a promised start belongs to."""

from __future__ import annotations

import os

import pytest

from zerolayer.guard.deadline._native import Tickets
from zerolayer.guard.deadline.booking import Booking, Terms, Work
from zerolayer.guard.deadline.tickets import Asker, read_asker

MS = 1_000_000
START = 100 * MS
RETRY, FIRST, SILENT = Asker("a", retry=True), Asker("a", retry=False), Asker("a")


def _tickets(*starts: int, asker: Asker = FIRST) -> Tickets:
    tickets = Tickets(250 * MS, os.urandom)
    for start in starts:
        booking = Booking(start, 0, Work(1, 0, 0, 1), Terms(0, 0, 0, 0), 1, 0, 0, 0)
        tickets.add(booking, asker, "body")
    return tickets


@pytest.mark.parametrize(("after_ms", "matches"), [(-6, False), (-5, True), (0, True), (250, True), (251, False)])
def test_a_silent_client_is_matched_from_a_moment_early_until_the_grace_ends(after_ms, matches):
    found = _tickets(START).match(SILENT, "body", START + after_ms * MS)
    assert (found is not None) is matches


def test_who_came_in_time_and_was_read_late_is_matched():
    assert _tickets(START).match(SILENT, "body", START + 900 * MS, START + 250 * MS) is not None


def test_who_says_that_it_asks_again_gets_the_same_ticket_when_it_is_early():
    assert _tickets(START).match(RETRY, "body", 0).start_ns == START


def test_a_first_attempt_with_the_same_words_takes_nobodys_booking():
    assert _tickets(START).match(FIRST, "body", START) is None


@pytest.mark.parametrize(("credential", "key"), [("b", "body"), ("a", "other")])
def test_another_sender_or_another_body_does_not_match(credential, key):
    assert _tickets(START).match(Asker(credential, retry=True), key, START) is None


def test_equal_requests_are_a_multiset():
    tickets = _tickets(START, START + 5 * MS)
    first = tickets.match(RETRY, "body", START + 6 * MS)
    first.held = True
    assert tickets.match(RETRY, "body", START + 6 * MS).start_ns == START + 5 * MS


def test_a_ticket_tells_nothing_about_the_next_one():
    """Whoever shares an address, as behind one proxy, might else give back what others wait for."""
    tickets = _tickets(START, START + 5 * MS)
    first, second = (booking.ticket for booking in tickets)
    assert first[:4] != second[:4]
    assert len(first) == len(second) == 12


def test_a_ticket_names_one_booking_and_only_its_sender_may_use_it():
    tickets = _tickets(START, START + 5 * MS)
    second = tickets.match(RETRY, "body", START + 400 * MS) or tickets.match(RETRY, "body", 0)
    named = Asker("a", ticket=second.ticket)
    assert tickets.match(named, "body", 0) is second
    assert tickets.match(Asker("b", ticket=second.ticket), "body", 0) is None


def test_what_was_redeemed_is_forgotten():
    tickets = _tickets(START)
    tickets.remove(tickets.match(RETRY, "body", START))
    assert (len(tickets), tickets.of("a"), tickets.match(RETRY, "body", START)) == (0, 0, None)


def test_bookings_of_one_sender_are_at_least_five_milliseconds_apart():
    tickets = _tickets(START, START + 5 * MS)
    assert tickets.spaced(FIRST, 0, START + 2 * MS) == START + 10 * MS
    assert tickets.spaced(FIRST, 0, START - 5 * MS) == START - 5 * MS
    assert tickets.spaced(Asker("b"), 0, START + 2 * MS) == START + 2 * MS


def test_who_reads_whole_seconds_is_booked_on_a_whole_second_after_now():
    assert _tickets().spaced(Asker("a", reads_ms=False), 300 * MS, 400 * MS) == 1_300 * MS


GRPC = {b"content-type": b"application/grpc", b"grpc-previous-rpc-attempts": b"4"}
STOCK = {b"x-stainless-retry-count": b"2"}


@pytest.mark.parametrize("also", [{}, STOCK, GRPC])
@pytest.mark.parametrize(("count", "retry"), [(b"0", False), (b"00", False), (b"1", True), (b"12", True)])
def test_our_own_count_says_who_has_waited_and_never_that_nobody_comes_again(count, retry, also):
    asker = read_asker(also | {b"x-zl-retry-count": count}, "a", "")
    assert (asker.retry, asker.last, asker.reads_ms) == (retry, False, True)


@pytest.mark.parametrize("count", [b"", b"-1", b"one"])
def test_a_count_that_is_none_says_nothing(count):
    assert read_asker({b"x-zl-retry-count": count}, "a", "").retry is None
