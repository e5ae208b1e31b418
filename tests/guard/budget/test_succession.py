"""Two processes, one limit: what the old one's requests hold is held in the new one, and settled as they end."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import RateLimited
from zerolayer.guard.budget.account import DAY_US
from zerolayer.guard.budget.budgets import Budgets, Hold, Size, tenant_id
from zerolayer.guard.budget.succession import Bequest, Inheritance, Legacy, Settled
from zerolayer.guard.identity import Identity, Quota
from zerolayer.guard.spent import NOTHING, Spent

NOON = 20_000 * DAY_US + DAY_US // 2
QUOTA = Quota(10, 1000, 4, 100_000)
ALICE = Identity("acme", b"a" * 16, quota=QUOTA)
TENANTS = {"acme": Quota(20, 3000, 6, 400_000)}


class Two:
    """An old process and its successor, with one clock."""

    def __init__(self) -> None:
        self.now = NOON
        self.old = Budgets(lambda: self.now, tenants=TENANTS)
        self.new = Budgets(lambda: self.now, tenants=TENANTS)

    def begin(self, tokens: int, us: int = 0) -> Hold:
        hold = self.old.reserve(ALICE, Size(tokens, us), Size(tokens, us))
        hold.begin()
        return hold

    def hand_over(self) -> None:
        self.told: list[Settled] = []
        self.bequest = Bequest(self.old, self._tell)
        legacies = msgspec.msgpack.decode(msgspec.msgpack.encode(self.bequest.legacies()), type=tuple[Legacy, ...])
        self.heir = Inheritance(self.new, legacies)
        self.bequest.begin()

    def _tell(self, message: Settled) -> None:
        self.told.append(message)
        self.heir.settled(message)

    def figures(self, budgets: Budgets) -> dict[bytes, tuple[int, ...]]:
        for account in budgets.accounts():
            account.advance(self.now)
        return {
            account.id: (
                account.requests_debt, account.tokens_debt, account.used_us, account.held_requests,
                account.held_tokens, account.held_us, account.running,
            )
            for account in budgets.accounts()
        }  # fmt: skip


@pytest.fixture
def two() -> Two:
    return Two()


def test_what_was_used_before_counts_afterwards(two):
    two.begin(700).settle(Spent(300, 400))
    two.hand_over()
    with pytest.raises(RateLimited):
        two.new.reserve(ALICE, Size(400), Size(400))
    assert two.new.reserve(ALICE, Size(300), Size(300))


def test_what_runs_over_there_is_held_here_until_it_ends(two):
    hold = two.begin(700)
    two.hand_over()
    with pytest.raises(RateLimited):
        two.new.reserve(ALICE, Size(400), Size(400))
    hold.settle(Spent(100, 100))
    assert two.new.reserve(ALICE, Size(800), Size(800))


def test_requests_at_once_are_counted_over_both(two):
    holds = [two.begin(1) for _ in range(3)]
    two.hand_over()
    two.new.reserve(ALICE, Size(1), Size(1))
    with pytest.raises(RateLimited, match="at once"):
        two.new.reserve(ALICE, Size(1), Size(1))
    holds[0].settle(Spent(1, 0))
    two.new.reserve(ALICE, Size(1), Size(1))


def test_a_request_that_begins_over_there_after_all_is_counted_once(two):
    hold = two.old.reserve(ALICE, Size(10), Size(50))
    two.hand_over()
    hold.tighten(Size(20))
    hold.begin()
    hold.settle(Spent(10, 10))
    two.heir.over(all_used=False)
    assert two.figures(two.new) == two.figures(two.old)


def test_one_that_never_begins_leaves_no_trace(two):
    hold = two.old.reserve(ALICE, Size(10), Size(50))
    two.hand_over()
    hold.settle(NOTHING)
    assert set(two.figures(two.new).values()) == {(0,) * 7}


def test_of_a_process_that_died_everything_it_held_was_used(two):
    two.begin(600)
    two.hand_over()
    two.heir.over(all_used=True)
    with pytest.raises(RateLimited):
        two.new.reserve(ALICE, Size(500), Size(500))
    assert two.new.accounts()[0].running == 0


def test_a_tenant_has_the_limits_of_the_new_contract(two):
    two.begin(1).settle(Spent(1, 0))
    two.new = Budgets(lambda: two.now, tenants={"acme": Quota(requests_per_minute=1)})
    two.hand_over()
    account = next(account for account in two.new.accounts() if account.id == tenant_id("acme"))
    assert account.quota == Quota(requests_per_minute=1)


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 90), st.booleans(), st.booleans()), max_size=4),
    st.lists(st.integers(0, 3), max_size=4),
    st.integers(0, 5_000_000),
)
def test_when_all_is_settled_both_would_say_the_same(requests, order, pause_us):
    two = Two()
    holds = []
    for tokens, used, before, _ in requests:
        hold = two.old.reserve(ALICE, Size(tokens, tokens), Size(tokens, tokens))
        if before:
            hold.begin()
        holds.append((hold, min(used, tokens)))
    two.hand_over()
    two.now += pause_us
    two.figures(two.old)  # brings them up to now, as every request does before it begins
    for place in [*order, *range(len(holds))]:
        if place < len(holds):
            hold, used = holds[place]
            if requests[place][3] and not hold.begun and not hold.settled:
                hold.begin()
            hold.settle(Spent(used, 0, 0, used))
    two.heir.over(all_used=False)
    assert {k: v for k, v in two.figures(two.new).items() if any(v)} == {
        k: v for k, v in two.figures(two.old).items() if any(v)
    }
