"""One bucket against the definition of a rate, with a clock of the test's own."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import BudgetSpent, RateLimited
from zerolayer.guard.budget.account import DAY_US, Account
from zerolayer.guard.budget.lease import Units
from zerolayer.guard.identity import Quota

MINUTE = 60_000_000
NOON = 20_000 * DAY_US + DAY_US // 2
EVENTS = st.lists(st.tuples(st.integers(0, 2 * MINUTE), st.integers(0, 50)), max_size=60)


def account(**quota: int) -> Account:
    return Account(bytes(16), "key", Quota(**quota), NOON)


def ask(one: Account, now: int, tokens: int = 0, compute_us: int = 0):
    """Start and end one request at once; the refusal or None."""
    one.advance(now)
    refusal = one.refusal(tokens, compute_us)
    if refusal is None:
        one.take(tokens, compute_us)
        one.begin()
        one.finish(tokens, compute_us, tokens, compute_us, now)
    return refusal


@given(st.integers(1, 1000), EVENTS)
def test_requests_pass_exactly_as_a_bucket_of_that_size_and_rate_lets_them(limit, events):
    one, now, level = account(requests_per_minute=limit), NOON, Fraction(0)
    for wait, count in events:
        now += wait
        level = max(Fraction(0), level - Fraction(limit * wait, MINUTE))
        for _ in range(count):
            fits = level + 1 <= limit
            assert (ask(one, now) is None) == fits
            level += fits


@given(st.integers(1, 500), EVENTS, st.integers(1, 3 * MINUTE))
def test_no_window_holds_more_tokens_than_the_limit_and_what_drains_in_it(limit, events, window):
    one, now, passed = account(tokens_per_minute=limit), NOON, []
    for wait, tokens in events:
        now += wait
        if ask(one, now, tokens) is None:
            passed.append((now, tokens))
    for start, _ in passed:
        inside = sum(tokens for at, tokens in passed if start <= at <= start + window)
        assert inside * MINUTE <= limit * (MINUTE + window)


@given(st.integers(1, 10_000), st.integers(1, 200))
def test_whoever_comes_back_when_told_is_served_and_a_moment_before_is_not(limit, tokens):
    one = account(tokens_per_minute=limit)
    tokens = min(tokens, limit)
    now, refusal = NOON, None
    for _ in range(limit // tokens + 1):
        refusal = refusal or ask(one, now, tokens)
    if refusal is None:
        return
    assert isinstance(refusal, RateLimited)
    early = Account(one.id, "key", one.quota, NOON)
    early.restore(one.state())
    wait = refusal.retry_after_ms * 1000
    assert ask(one, now + wait, tokens) is None
    if wait > 1000:
        assert ask(early, now + wait - 1000, tokens) is not None


@given(
    st.builds(Quota, *[st.integers(0, 3) for _ in range(4)]),
    st.lists(st.tuples(st.integers(0, MINUTE), st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30),
)
def test_the_common_path_decides_as_the_other_one_does(quota, requests):
    one, now = Account(bytes(16), "key", quota, NOON), NOON
    for wait, tokens, compute_us, ends in requests:
        now += wait
        one.advance(now)
        expected = one.refusal(tokens, compute_us) is None
        assert one.claim(tokens, compute_us, now) == expected
        if expected:
            one.begin()
            if ends:
                one.finish(tokens, compute_us, tokens, compute_us, now)


def test_a_request_larger_than_the_limit_is_told_that_waiting_cannot_help():
    refusal = ask(account(tokens_per_minute=10), NOON, 11)
    assert isinstance(refusal, BudgetSpent)


def test_requests_at_once_are_counted_until_they_end():
    one = account(concurrent=1)
    one.take(0, 0)
    one.begin()
    assert isinstance(one.refusal(0, 0), RateLimited)
    one.finish(0, 0, 0, 0, NOON)
    assert one.refusal(0, 0) is None


def test_a_prepaid_day_ends_at_midnight_utc():
    one = account(compute_us_per_day=100)
    assert ask(one, NOON, compute_us=100) is None
    assert isinstance(ask(one, NOON + DAY_US // 2 - 1, compute_us=1), BudgetSpent)
    assert ask(one, NOON + DAY_US // 2, compute_us=100) is None


def test_a_clock_that_was_set_back_drains_nothing():
    one = account(requests_per_minute=1)
    assert ask(one, NOON) is None
    earlier = Account(one.id, "key", one.quota, NOON - 10 * MINUTE)
    earlier.restore(one.state())
    assert ask(earlier, NOON - 10 * MINUTE) is not None


@pytest.mark.parametrize(("spent", "left"), [(0, 10), (1, 9), (10, 0)])
def test_a_level_tells_what_is_left_and_when_all_of_it_is(spent, left):
    one = account(requests_per_minute=10)
    for _ in range(spent):
        ask(one, NOON)
    level = one.requests()
    assert (level.limit, level.left, level.reset_us) == (10, left, spent * MINUTE // 10)


def test_the_largest_limits_that_a_key_can_say_are_counted_exactly():
    most = Quota((1 << 32) - 1, (1 << 32) - 1, (1 << 16) - 1, (1 << 64) - 1)
    one = Account(b"k" * 16, "key", most, 0)
    assert one.claim((1 << 32) - 1, 1 << 40, 0)
    assert not one.claim(1, 1, 0)  # of tokens
    one.begin()
    one.finish((1 << 32) - 1, 1 << 40, (1 << 32) - 1, 1 << 40, 0)
    assert one.tokens().left == 0
    one.advance(60_000_000)
    assert one.tokens().left == (1 << 32) - 1


def test_what_another_node_wants_of_a_limit_that_does_not_exist_stays_countable():
    one = Account(b"k" * 16, "key", Quota(concurrent=1), 0)
    for _ in range(100):
        one.lend(Units(*[(1 << 63) - 1] * 4))
    assert one.state().used_us < 1 << 63
