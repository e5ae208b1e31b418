"""Budgets whose home is elsewhere: nothing is spent that is not held, and what is not used goes back."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from zerolayer.errors import BudgetSpent, RateLimited
from zerolayer.guard.budget.account import DAY_US
from zerolayer.guard.budget.budgets import Budgets, Size
from zerolayer.guard.budget.lease import LENT_US, SPEND_US, Units
from zerolayer.guard.budget.shared import SharedAccount
from zerolayer.guard.identity import Identity, Quota
from zerolayer.guard.spent import Spent

NOON = 20_000 * DAY_US + DAY_US // 2
KEY = Identity("acme", b"k" * 16, quota=Quota(10, 100, 2, 1000))


class Two:
    """A home and another node; ``talk`` delivers what they have to say to each other."""

    def __init__(self) -> None:
        self.now = NOON
        self.asks: list = []
        self.names = itertools.count()
        self.home = Budgets(lambda: self.now)
        self.node = Budgets(lambda: self.now, elsewhere=self._elsewhere)

    def _elsewhere(self, account_id: bytes, whose: str, quota: Quota) -> SharedAccount:
        return SharedAccount(account_id, whose, quota, self._want)

    def _want(self, account: SharedAccount, need: Units) -> None:
        ask = account.borrower.ask(next(self.names).to_bytes(16, "big"), need, self.now)
        if ask is not None:
            self.asks.append(msgspec.structs.replace(ask, whose=account.whose, quota=account.quota))

    def talk(self) -> None:
        asks, self.asks = self.asks, []
        for ask in asks:
            self.node.granted(self.home.lend(ask))
        for back in self.node.over():
            self.home.take_back(back)
        self.home.over()

    def reserve(self, least: Size, most: Size):
        """As a client does that comes back when told."""
        try:
            return self.node.reserve(KEY, least, most)
        except RateLimited:
            self.talk()
            return self.node.reserve(KEY, least, most)


@pytest.fixture
def two() -> Two:
    return Two()


def left(two: Two) -> tuple[int, int]:
    requests, tokens = two.home.levels(KEY)
    return requests.left, tokens.left


def test_nothing_is_spent_before_the_home_has_lent_it(two):
    with pytest.raises(RateLimited):
        two.node.reserve(KEY, Size(1), Size(1))


def test_what_a_request_did_not_use_is_back_at_home_after_its_lease(two):
    hold = two.reserve(Size(50, 10), Size(50, 10))
    hold.begin()
    hold.settle(Spent(2, 3, 0, 4))
    two.now += SPEND_US
    two.talk()
    two.home.reserve(KEY, Size(0), Size(0)).release()
    assert left(two) == (9, 95)


def test_a_request_that_never_started_leaves_no_trace(two):
    hold = two.reserve(Size(50, 10), Size(50, 10))
    hold.release()
    two.now += SPEND_US
    two.talk()
    assert two.home.reserve(KEY, Size(100, 1000), Size(100, 1000)).roomy


def test_the_true_length_takes_what_is_missing_or_is_refused(two):
    hold = two.reserve(Size(10), Size(5000))
    assert isinstance(hold.tighten(Size(40)), RateLimited)  # only the least was lent
    refusals = 0
    while two.reserve(Size(10), Size(5000)).tighten(Size(40)) is not None:
        two.talk()
        refusals += 1
    assert refusals <= 2


def test_a_request_larger_than_the_limit_is_told_so_at_once(two):
    with pytest.raises(BudgetSpent):
        two.node.reserve(KEY, Size(101), Size(101))


def test_requests_at_once_are_shared(two):
    first = two.reserve(Size(1), Size(1))
    second = two.reserve(Size(1), Size(1))
    with pytest.raises(RateLimited):
        two.home.reserve(KEY, Size(1), Size(1))
    for hold in (first, second):
        hold.begin()
        hold.settle(Spent(0, 1))
    two.now += SPEND_US
    two.talk()
    two.home.reserve(KEY, Size(1), Size(1)).release()


def test_a_node_that_is_never_heard_of_again_has_used_everything(two):
    two.reserve(Size(40), Size(40)).begin()
    two.node = Budgets(lambda: two.now)
    before = two.home._accounts[KEY.key_id]
    two.now += LENT_US
    two.home.over()
    assert (before.tokens_debt, before.running) == (40 * 60_000_000, 0)
