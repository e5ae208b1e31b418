"""Budgets under races, aborts and restarts: what is held and used never exceeds a limit, and nothing leaks."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from zerolayer.errors import BudgetSpent, RateLimited, StartupError
from zerolayer.guard.budget.account import DAY_US
from zerolayer.guard.budget.budgets import Budgets, Size, tenant_id
from zerolayer.guard.budget.journal import BudgetJournal
from zerolayer.guard.identity import ANYONE, Identity, Quota
from zerolayer.guard.spent import Spent

MINUTE = 60_000_000
NOON = 20_000 * DAY_US + DAY_US // 2
KEY_QUOTA = Quota(6, 60, 3, 1000)
TENANT_QUOTA = Quota(9, 100, 4, 1500)
ALICE = Identity("acme", b"a" * 16, quota=KEY_QUOTA)
BOB = Identity("acme", b"b" * 16, quota=KEY_QUOTA)


def size(tokens: int = 0, compute_us: int = 0) -> Size:
    return Size(tokens, compute_us)


class Lives(RuleBasedStateMachine):
    """Requests of two keys of one tenant begin, are cut, end, and the server is killed, in any order."""

    holds = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.now = NOON
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "log"
        self.life = 0
        self.ended: list[tuple[int, Identity, int, int]] = []  # when, whose, tokens, compute
        self.begun: list[tuple[int, Identity]] = []
        self.open: dict[object, tuple[Identity, Size]] = {}
        self.start()

    def start(self) -> None:
        self.journal = BudgetJournal(self.path, records=16)
        self.budgets = Budgets(
            lambda: self.now, tenants={"acme": TENANT_QUOTA}, journal=self.journal, kept=self.journal.kept
        )
        self.journal.states = self.budgets.states

    @rule(target=holds, who=st.sampled_from([ALICE, BOB]), least=st.integers(1, 30), more=st.integers(0, 30))
    def reserve(self, who, least, more):
        try:
            hold = self.budgets.reserve(who, size(least, 10 * least), size(least + more, 10 * (least + more)))
        except (RateLimited, BudgetSpent):
            return None
        refusal = hold.tighten(size(least, 10 * least))
        if refusal is not None:
            return None
        self.open[hold] = (who, size(least, 10 * least))
        return hold

    @rule(hold=holds)
    def begin(self, hold):
        if hold in self.open and not hold.begun:
            hold.begin()
            self.begun.append((self.now, self.open[hold][0]))

    @rule(hold=consumes(holds), part=st.floats(0, 1))
    def end(self, hold, part):
        """Complete, or cut: it has used some of what it held; never more."""
        if hold not in self.open:
            return
        who, held = self.open.pop(hold)
        tokens, compute = int(held.tokens * part), int(held.compute_us * part)
        begun = hold.begun
        hold.settle(Spent(0, tokens, 0, compute))
        hold.release()  # a second end changes nothing
        if begun:
            self.ended.append((self.now, who, tokens, compute))

    @rule(us=st.integers(1, 2 * MINUTE))
    def wait(self, us):
        self.now += us

    @rule()
    def kill(self):
        """What was running dies with the process; the file is as the kernel has it."""
        self.journal._map.close()
        os.close(self.journal._file)
        self.open.clear()
        self.life += 1
        self.start()

    @invariant()
    def limits_hold(self):
        for quota, mine in ((KEY_QUOTA, {ALICE}), (KEY_QUOTA, {BOB}), (TENANT_QUOTA, {ALICE, BOB})):
            running = [held for who, held in self.open.values() if who in mine]
            assert len(running) <= quota.concurrent
            today = sum(us for at, who, _, us in self.ended if who in mine and at // DAY_US == self.now // DAY_US)
            assert today + sum(held.compute_us for held in running) <= quota.compute_us_per_day
            begun = [at for at, who in self.begun if who in mine]
            tokens = [(at, count) for at, who, count, _ in self.ended if who in mine]
            for start in {at for at, _ in tokens} | set(begun):
                window = MINUTE + self.now - start
                assert sum(at >= start for at in begun) * MINUTE <= quota.requests_per_minute * window
                inside = sum(count for at, count in tokens if at >= start)
                held = sum(held.tokens for held in running)
                assert (inside + held) * MINUTE <= quota.tokens_per_minute * window

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def budgets(now: list[int], **tenants: Quota) -> Budgets:
    return Budgets(lambda: now[0], tenants=tenants)


def test_a_thousand_aborted_requests_leave_the_budget_where_it_was():
    now = [NOON]
    one = budgets(now, acme=TENANT_QUOTA)
    one.reserve(ALICE, size(1), size(1)).release()
    before = one.levels(ALICE)
    for _ in range(1000):
        hold = one.reserve(ALICE, size(1), size(50, 500))
        hold.tighten(size(40, 400))
        hold.release()
    assert one.levels(ALICE) == before


def test_either_both_accounts_are_held_or_none():
    one = budgets([NOON], acme=Quota(concurrent=1))
    one.reserve(ALICE, size(), size())
    for _ in range(3):
        with pytest.raises(RateLimited, match="tenant"):
            one.reserve(BOB, size(), size())
    assert one._accounts[BOB.key_id].running == 0


def test_a_request_is_judged_on_its_true_length_not_on_the_bound():
    one = budgets([NOON])
    hold = one.reserve(ALICE, size(10), size(500))
    assert hold.tighten(size(60)) is None
    other = one.reserve(ALICE, size(0), size(0))
    assert isinstance(other.tighten(size(1)), RateLimited)


def test_of_concurrent_first_requests_exactly_the_limit_passes():
    one = budgets([NOON])
    passed = 0
    for _ in range(20):
        try:
            hold = one.reserve(Identity("a", b"q" * 16, quota=Quota(requests_per_minute=10)), size(), size())
        except RateLimited:
            continue
        hold.begin()
        passed += 1
    assert passed == 10


def test_settling_counts_what_ran_and_no_more():
    now = [NOON]
    one = budgets(now)
    hold = one.reserve(ALICE, size(50), size(50))
    hold.begin()
    assert one.levels(ALICE)[1].left == 10
    hold.settle(Spent(3, 4, 0, 0))
    assert one.levels(ALICE)[1].left == 53


def test_who_has_no_limits_has_no_account():
    one = budgets([NOON])
    hold = one.reserve(ANYONE, size(1 << 60), size(1 << 60))
    hold.begin()
    hold.settle(Spent(1, 1, 0, 1))
    assert one.levels(ANYONE) == (None, None)
    assert one._accounts == {}


def test_a_log_that_is_full_is_written_anew_and_forgets_nothing(tmp_path):
    journal = BudgetJournal(tmp_path / "log", records=4)
    now = [NOON]
    one = Budgets(lambda: now[0], tenants={"acme": Quota(tokens_per_minute=1000)}, journal=journal)
    journal.states = one.states
    for number in range(100):
        hold = one.reserve(Identity("acme", bytes([number]) * 16), size(1), size(1))
        hold.begin()
        hold.settle(Spent(0, 1))
    journal.close()
    kept = BudgetJournal(tmp_path / "log").kept
    assert kept[tenant_id("acme")].tokens_debt == 100 * MINUTE


def test_a_torn_record_ends_the_log_and_those_before_it_count(tmp_path):
    for cut in (1, 20, 30):
        path = tmp_path / f"log{cut}"
        journal = BudgetJournal(path, records=8)
        one = Budgets(lambda: NOON, tenants={"acme": Quota(tokens_per_minute=1000)}, journal=journal)
        for _ in range(2):
            hold = one.reserve(Identity("acme", b"k" * 16), size(5), size(5))
            hold.begin()
            hold.settle(Spent(0, 5))
        journal.close()
        data = bytearray(path.read_bytes())
        data[64 + 64 + cut : 64 + 128] = bytes(64 - cut)
        path.write_bytes(data)
        assert BudgetJournal(path).kept[tenant_id("acme")].tokens_debt == 5 * MINUTE


def test_two_servers_never_share_a_log(tmp_path):
    journal = BudgetJournal(tmp_path / "log")
    with pytest.raises(StartupError, match="in use"):
        BudgetJournal(tmp_path / "log")
    journal.close()


@pytest.mark.parametrize("data", [b"x" * 200, b"zerolayer budget\0\0\0\x63" + bytes(200)])
def test_a_file_that_is_no_log_or_a_newer_one_is_refused(tmp_path, data):
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(StartupError, match="no budget log"):
        BudgetJournal(tmp_path / "log")


def test_keys_that_hold_nothing_are_forgotten_once_there_are_many(monkeypatch):
    monkeypatch.setattr("zerolayer.guard.budget.budgets._IDLE_SWEEP", 10)
    now = [NOON]
    one = budgets(now)
    for number in itertools.islice(itertools.count(), 100):
        one.reserve(Identity("a", bytes([number]) * 16, quota=Quota(concurrent=1)), size(), size()).release()
    assert len(one._accounts) <= 10
