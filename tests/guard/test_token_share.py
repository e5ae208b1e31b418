"""How long a text is taken to be before it is tokenised, by what its own tenant sent before."""

from __future__ import annotations

import msgspec
from small_guard import arrive, chat, small_guard

from zerolayer.guard.guard import Guard
from zerolayer.guard.identity import Identity
from zerolayer.guard.token_share import TokenShare, TokenShares


def _share(*seen: tuple[int, int]) -> TokenShare:
    share = TokenShare()
    for text_bytes, tokens in seen:
        share.observe(text_bytes, tokens)
    return share


def test_without_experience_every_byte_may_be_a_token():
    assert _share().bound(700, 512) == 512


def test_a_few_texts_say_what_share_of_their_bytes_others_have_with_a_margin():
    assert _share(*[(1000, 200)] * 8).bound(100, 101) == 24


def test_many_texts_of_a_size_say_what_one_more_will_have():
    assert _share(*[(700, 127)] * 32).bound(690, 512) == 127


def test_one_longer_text_of_a_size_counts_at_once():
    assert _share(*[(700, 127)] * 40, (690, 300)).bound(700, 512) == 300


def test_texts_of_another_size_do_not_count_as_of_this_one():
    assert _share(*[(7000, 127)] * 40, *[(700, 350)] * 8).bound(700, 512) == 420


def test_what_a_slot_holds_is_never_exceeded():
    assert _share(*[(1000, 900)] * 8).bound(1000, 512) == 512


def test_what_is_remembered_of_sizes_and_tenants_is_bounded():
    share, shares = TokenShare(), TokenShares()
    for size in range(100, 10_000_000, 1000):
        share.observe(size, 1)
    for number in range(1000):
        shares.of(f"t{number}").observe(10, 1)
    assert len(share._sizes) == 64
    assert len(shares._of) == 256
    assert shares.of("t999").bound(10, 10) == 10
    assert shares.of("t999") is shares.of("t999")


def asked_as(guard: Guard, tenant: str, text: str):
    """What the calendar is asked for a text, and what becomes of it."""
    wishes = []
    ask = guard.admission.ask
    guard.admission.ask = lambda wish, asker: (wishes.append(wish), ask(wish, asker))[1]
    request = chat(text)
    try:
        arrival = msgspec.structs.replace(arrive(guard, request), identity=Identity(tenant))
        answer = guard.reserve(request, arrival)
    finally:
        guard.admission.ask = ask
    return request, answer, wishes[0]


def told(guard: Guard, tenant: str, text: str) -> None:
    """A whole request, after which the guard knows how long its text was."""
    request, reservation, _ = asked_as(guard, tenant, text)
    guard.confirm(reservation, request, guard.reader.prompts(request))
    guard.slots.release(reservation.slot)


def test_texts_of_few_tokens_shorten_the_bookings_of_their_own_tenant_and_of_no_other():
    guard, _ = small_guard(slots=2, slot_tokens=1000)
    for _ in range(40):
        told(guard, "noisy", "\U0001f600" * 50)  # a token for four bytes
    _, _, own = asked_as(guard, "noisy", "a" * 200)
    _, _, other = asked_as(guard, "quiet", "a" * 200)
    assert own.promised.chunks < own.most.chunks
    assert other.promised == other.most
