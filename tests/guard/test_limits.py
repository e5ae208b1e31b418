"""Limits of keys and tenants: judged before a slot is asked for, settled on the true length, given back."""

from __future__ import annotations

import msgspec
import pytest
from small_guard import chat, reserve, small_guard

from zerolayer.errors import BudgetSpent, PermissionRefused, RateLimited, SlotsBusy
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.guard.guard import Guard
from zerolayer.guard.identity import Identity, Quota
from zerolayer.wire.schema import Request, Tier


def limited(guard: Guard, **quota: int) -> Identity:
    guard.budgets = Budgets(lambda: 1_728_043_200_000_000)
    return Identity("acme", b"k" * 16, quota=Quota(**quota), tier=Tier.DEFAULT)


def reserve_as(guard: Guard, identity: Identity, request: Request):
    arrival = guard.arrive(request, {}, credential="peer", body=b"body", wall_ms=int, identity=identity)
    return guard.reserve(request, arrival)


def test_a_limit_is_judged_before_a_slot_is_asked_for():
    guard, words = small_guard(slots=1)
    identity = limited(guard, requests_per_minute=1)
    request = chat()
    guard.confirm(reserve_as(guard, identity, request), request, guard.reader.prompts(request))
    calls = words.calls
    with pytest.raises(RateLimited):  # and not SlotsBusy, which would book
        reserve_as(guard, identity, request)
    assert words.calls == calls
    assert len(guard.admission.tickets) == 0


def test_a_refusal_for_lack_of_slots_gives_the_budget_back():
    guard, _ = small_guard(slots=1)
    identity = limited(guard, requests_per_minute=10, concurrent=1)
    reserve(guard, chat())
    for _ in range(3):
        assert isinstance(reserve_as(guard, identity, chat()), SlotsBusy)
    assert guard.budgets.levels(identity)[0].left == 10


def test_a_reservation_that_is_released_gives_slot_and_budget_back():
    guard, _ = small_guard(slots=1)
    identity = limited(guard, concurrent=1, tokens_per_minute=1000)
    for _ in range(3):
        guard.release(reserve_as(guard, identity, chat()))
    assert guard.slots.free == 1
    assert guard.budgets.levels(identity)[1].left == 1000


def test_the_true_length_is_judged_and_not_the_bound():
    guard, _ = small_guard(slots=1)
    identity = limited(guard, tokens_per_minute=20)
    request = chat("a" * 6)  # 3 + 6 tokens and an answer of 10: 19, though the bound is larger
    reservation = reserve_as(guard, identity, request)
    assert guard.confirm(reservation, request, guard.reader.prompts(request))[0].max_tokens == 10


def test_a_true_length_over_the_limit_is_refused_and_gives_everything_back():
    guard, _ = small_guard(slots=1)
    identity = limited(guard, tokens_per_minute=20)
    request = chat("a" * 9)
    reservation = reserve_as(guard, identity, request)
    with pytest.raises(BudgetSpent):
        guard.confirm(reservation, request, guard.reader.prompts(request))
    assert guard.slots.free == 1
    assert guard.budgets.levels(identity)[1].left == 20


def test_a_key_caps_the_tier_of_its_requests():
    guard, _ = small_guard(slots=1)
    reservation = reserve_as(guard, limited(guard), chat(tier=Tier.PRIORITY))
    assert reservation.wish.tier is Tier.DEFAULT


def test_a_key_for_other_models_is_forbidden_even_to_count():
    guard, _ = small_guard()
    identity = msgspec.structs.replace(limited(guard), models=frozenset({"other"}))
    with pytest.raises(PermissionRefused):
        reserve_as(guard, identity, chat())
    with pytest.raises(PermissionRefused):
        guard.check(chat(), identity)
