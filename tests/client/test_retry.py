"""When to ask again, as arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.client.retry import NS_PER_MS, TRUSTED_SKEW_NS, RetryBudget, RetryPolicy, backoff_ns, promised_ns

MS = NS_PER_MS
CHANCES = st.floats(0, 1, exclude_max=True)


def promise(*, sent: int = 0, read: int = 10 * MS, wait_ms: int = 100, skew: int | None = None) -> int:
    """A reply read at a wall time of an hour, with a stamp ``skew`` nanoseconds before that."""
    wall = 3600 * 1000 * MS
    return promised_ns(
        sent_ns=sent,
        read_ns=read,
        wait_ms=wait_ms,
        read_wall_ns=wall,
        server_wall_ns=None if skew is None else wall - skew,
    )


def test_a_promise_counts_from_when_the_reply_was_read_where_no_stamp_says_more() -> None:
    assert promise() == 110 * MS


def test_a_promise_counts_from_the_stamp_where_the_clocks_agree() -> None:
    assert promise(read=10 * MS, skew=4 * MS) == 106 * MS


def test_a_clock_that_is_an_hour_off_changes_nothing() -> None:
    assert promise(skew=3_600_000 * MS) == promise(skew=-3_600_000 * MS) == 110 * MS


def test_a_stamp_is_trusted_up_to_two_seconds_of_skew_and_not_beyond() -> None:
    assert promise(read=5000 * MS, skew=TRUSTED_SKEW_NS) == 3100 * MS
    assert promise(read=5000 * MS, skew=TRUSTED_SKEW_NS + 1) == 5100 * MS


@given(
    st.integers(0, 10**12),
    st.integers(0, 10**10),
    st.integers(1, 60_000),
    st.none() | st.integers(-(10**13), 10**13),
)
def test_whatever_the_clocks_say_the_promise_lies_between_its_earliest_and_latest(sent, took, wait_ms, skew) -> None:
    at = promise(sent=sent, read=sent + took, wait_ms=wait_ms, skew=skew)
    assert sent + wait_ms * MS <= at <= sent + took + wait_ms * MS


@given(st.integers(0, 1000), CHANCES)
def test_a_backoff_is_anywhere_between_nothing_and_its_bound(nth, chance) -> None:
    policy = RetryPolicy(base_ms=50, cap_ms=8000)
    assert 1 <= backoff_ns(policy, nth, chance) <= min(8000, 50 * 2 ** min(nth, 20)) * MS


def test_the_bound_doubles_up_to_the_cap() -> None:
    policy = RetryPolicy(base_ms=100, cap_ms=500)
    assert [backoff_ns(policy, nth, 0.5) // MS for nth in range(5)] == [50, 100, 200, 250, 250]


@given(st.lists(st.booleans(), max_size=500))
def test_never_more_than_a_fifth_of_the_calls_is_retried_beyond_the_spare(calls) -> None:
    budget, begun, drawn = RetryBudget(RetryPolicy(spare=3)), 0, 0
    for is_call in calls:
        if is_call:
            budget.earn()
            begun += 1
        else:
            drawn += budget.draw()
        assert drawn <= 3 + 0.2 * begun + 1e-6


def test_five_calls_earn_one_retry() -> None:
    budget = RetryBudget(RetryPolicy(spare=1))
    assert budget.draw()
    assert not budget.draw()
    for _ in range(5):
        budget.earn()
    budget.earn()  # sums of 0.2 may fall short of 1 by a rounding
    assert budget.draw()
    assert not budget.draw()
