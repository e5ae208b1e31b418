"""Leases: whatever the network and the nodes do, all that is used and held anywhere is never more than the limit."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from zerolayer.guard.budget.account import DAY_US, Account
from zerolayer.guard.budget.lease import (
    LENT_US,
    NO_UNITS,
    SPEND_US,
    Ask,
    Borrower,
    Granted,
    Lender,
    Loan,
    Return,
    Units,
)
from zerolayer.guard.identity import Quota

ID = b"a" * 16
QUOTA = Quota(requests_per_minute=10, tokens_per_minute=100, compute_us_per_day=1000)
MINUTE = 60_000_000
NOON = 20_000 * DAY_US + DAY_US // 2
UNITS = st.builds(Units, st.integers(0, 4), st.integers(0, 40), st.integers(0, 300))


class Network(RuleBasedStateMachine):
    """A home and two other nodes. Messages are lost, doubled, delayed and swapped; every node may die at any moment.

    Nodes' clocks agree on nothing but how fast they run.
    """

    @initialize(offsets=st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=2))
    def start(self, offsets):
        self.now = NOON
        self.offsets = offsets
        self.account = Account(ID, "key", QUOTA, NOON)
        self.lender = Lender(ID, self.account)
        self.nodes = [Borrower(ID), Borrower(ID)]
        self.running: list[list[tuple[Loan, Units]]] = [[], []]
        self.wire: list[tuple[int, Ask | Granted | Return]] = []  # node, message
        self.used: list[tuple[int, Units]] = []
        self.names = 0

    def clock(self, node: int) -> int:
        return self.now + self.offsets[node]

    @rule(node=st.integers(0, 1), wanted=UNITS)
    def ask(self, node, wanted):
        self.names += 1
        ask = self.nodes[node].ask(self.names.to_bytes(16, "big"), wanted, self.clock(node))
        if ask is not None:
            self.wire.append((node, ask))

    @rule(place=st.integers(0, 99), doubled=st.booleans())
    def deliver(self, place, doubled):
        if not self.wire:
            return
        place %= len(self.wire)
        node, message = self.wire[place] if doubled else self.wire.pop(place)
        self.account.advance(self.now)
        if isinstance(message, Ask):
            self.wire.append((node, self.lender.ask(message, self.now)))
        elif isinstance(message, Return):
            self.lender.take_back(message, self.now)
        else:
            self.nodes[node].granted(message, self.clock(node))

    @rule(place=st.integers(0, 99))
    def lose(self, place):
        if self.wire:
            self.wire.pop(place % len(self.wire))

    @rule(node=st.integers(0, 1), units=UNITS)
    def spend(self, node, units):
        loan = self.nodes[node].spend(units, self.clock(node))
        if loan is not None:
            self.running[node].append((loan, units))

    @rule(node=st.integers(0, 1), part=st.floats(0, 1))
    def end(self, node, part):
        if self.running[node]:
            loan, given = self.running[node].pop()
            used = Units(given.requests, int(given.tokens * part), int(given.compute_us * part))
            loan.end(used)
            self.used.append((self.now, used))

    @rule(node=st.integers(0, 1))
    def send_back(self, node):
        self.wire += [(node, back) for back in self.nodes[node].over(self.clock(node))]

    @rule(units=UNITS)
    def use_at_home(self, units):
        """A request of the home itself, from its beginning to its end."""
        self.account.advance(self.now)
        got = self.account.lend(units)
        self.account.close(got, NO_UNITS)
        self.used.append((self.now, got))

    @rule(us=st.integers(1, 3 * SPEND_US))
    def wait(self, us):
        self.now += us

    @rule(node=st.integers(0, 1))
    def kill_node(self, node):
        """What ran there has used what it was given: nobody will ever say otherwise."""
        self.used += [(self.now, given) for _, given in self.running[node]]
        self.running[node] = []
        self.nodes[node] = Borrower(ID)

    @rule()
    def kill_home(self):
        self.account.advance(self.now)
        kept = self.account.state()
        self.account = Account(ID, "key", QUOTA, self.now)
        self.account.restore(kept)
        self.lender = Lender(ID, self.account)

    @invariant()
    def nothing_exceeds_the_limit(self):
        if not hasattr(self, "nodes"):
            return
        held = sum((node.held(self.clock(at)) for at, node in enumerate(self.nodes)), NO_UNITS)
        held = sum((given for loans in self.running for _, given in loans), held)
        for start in {at for at, _ in self.used} | {self.now}:
            inside = sum((units for at, units in self.used if at >= start), held)
            # A unit that was lent before the window may be used in it: the window begins when it was set aside.
            window = MINUTE + self.now - start + min(LENT_US, start - NOON)
            assert inside.requests * MINUTE <= QUOTA.requests_per_minute * window
            assert inside.tokens * MINUTE <= QUOTA.tokens_per_minute * window
        everything = sum((units for _, units in self.used), held)
        assert everything.compute_us <= QUOTA.compute_us_per_day  # the test stays within a day


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def home() -> tuple[Account, Lender]:
    account = Account(ID, "key", QUOTA, NOON)
    return account, Lender(ID, account)


def lent(lender: Lender, node: Borrower, name: bytes, wanted: Units, now: int = NOON) -> None:
    node.granted(lender.ask(node.ask(name, wanted, now), now), now)


def test_of_a_limit_of_ten_on_three_nodes_exactly_ten_pass():
    _, lender = home()
    passed, nodes = 0, [Borrower(ID) for _ in range(3)]
    for turn in range(20):
        for at, node in enumerate(nodes):
            lent(lender, node, bytes([turn, at]), Units(1))
            if node.spend(Units(1), NOON) is not None:
                passed += 1
    assert passed == 10


def test_what_was_not_spent_goes_home_and_can_be_lent_again():
    account, lender = home()
    node = Borrower(ID)
    lent(lender, node, b"1", Units(10, 100, 1000))
    assert account.lend(Units(1)) == NO_UNITS
    for back in node.over(NOON + SPEND_US):
        lender.take_back(back, NOON + SPEND_US)
    assert account.lend(Units(10, 100, 1000)) == Units(10, 100, 1000)


def test_a_long_request_is_settled_by_what_it_used_long_after_the_lease_could_be_spent():
    account, lender = home()
    node = Borrower(ID)
    lent(lender, node, b"1", Units(1, 50))
    loan = node.spend(Units(1, 50), NOON)
    late = NOON + LENT_US // 2
    assert node.over(late) == []
    loan.end(Units(1, 5))
    (back,) = node.over(late)
    assert back.left == Units(0, 45)
    lender.take_back(back, late)
    assert account.tokens_debt == 5 * MINUTE


def test_of_whom_the_home_hears_nothing_it_takes_everything_as_used():
    account, lender = home()
    lent(lender, Borrower(ID), b"1", Units(3, 30, 300))
    lender.sweep(NOON + LENT_US)
    assert (account.requests_debt, account.tokens_debt, account.used_us) == (3 * MINUTE, 30 * MINUTE, 300)


def test_an_answer_that_comes_too_late_is_spent_by_nobody():
    _, lender = home()
    node = Borrower(ID)
    late = lender.ask(node.ask(b"1", Units(1), NOON), NOON)
    node.granted(late, NOON + SPEND_US)
    assert node.held(NOON + SPEND_US) == NO_UNITS


def test_strangers_numbers_create_nothing():
    account, lender = home()
    lender.ask(Ask(ID, b"1", Units(-5, -5, -5)), NOON)
    lender.ask(Ask(ID, b"2", Units(2)), NOON)
    lender.take_back(Return(ID, b"2", Units(1000, 1000, 1000)), NOON)
    assert account.lend(Units(1000, 1000, 10_000)) == Units(10, 100, 1000)
