"""The order of decisions, and that every refusal gives back what it took."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from zerolayer.errors import (
    BudgetSpent,
    ContextTooLong,
    Infeasible,
    InvalidRequest,
    ModelNotFound,
    PermissionRefused,
    RateLimited,
    SlotsBusy,
    Unavailable,
)
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.guard.deadline.admission import Admission
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import of_contract
from zerolayer.guard.freshness import Freshness
from zerolayer.guard.guard import LONG_TEXT_BYTES, Guard, Held
from zerolayer.guard.identity import Identity, Quota
from zerolayer.guard.prompts.reader import Reader
from zerolayer.guard.shape import Names, Shape
from zerolayer.model.cost import CostTable
from zerolayer.wire.schema import Message, Request, Route, Sampling, Tier

MS = 1_000_000
SHAPE = Shape(slot_tokens=100, default_max_tokens=50, vocabulary=300, longest_piece_bytes=4, template_tokens=3)


class Words:
    """Encodes and counts: one token a letter, three around a message."""

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, given, tools=()):
        self.calls += 1
        if isinstance(given, str):
            return [ord(letter) for letter in given]
        return [0, 0, 0] + [1] * len(given[-1].content) + [2] * len(tools)

    def slow(self, request):
        return request.output is not None

    def of(self, request):
        return request.output


def _guard(slots: int = 1, *, now: Callable[[], int] = lambda: 0, **shape: object) -> tuple[Guard, Words]:
    words = Words()
    cost = CostTable(slots=slots, chunk_tokens=50)
    for _ in range(100):  # a millisecond a step, chunk or not
        cost.observe(decode_rows=slots, elapsed_ns=MS)
        cost.observe(decode_rows=slots, prefill_tokens=50, elapsed_ns=MS)
    guard = Guard(
        names=Names("m", frozenset({"alias"})),
        reader=Reader(msgspec.structs.replace(SHAPE, **shape), words, words, words),
        admission=Admission(Calendar(slots, now, cost.prices), cost, now, "Come back in {ms} ms."),
        cost=cost,
        limits=of_contract(5_000, 250, 60_000),
        freshness=Freshness(0, "refuse"),
        chunk_tokens=50,
    )
    return guard, words


def _arrive(guard: Guard, request: Request, body: bytes = b"body", **headers: str):
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return guard.arrive(request, given, credential="peer", body=body, wall_ms=0)


def _reserve(guard: Guard, request: Request, **headers: str):
    return guard.reserve(request, _arrive(guard, request, **headers))


def _chat(text: str = "hello", **members: object) -> Request:
    return Request(Route.CHAT, "m", (Message("user", text),), **{"max_tokens": 10, **members})


def _prompt(prompt: object, **members: object) -> Request:
    return Request(Route.COMPLETIONS, "m", prompt=prompt, **{"max_tokens": 10, **members})


def _admit(guard: Guard, request: Request):
    reservation = _reserve(guard, request)
    return guard.confirm(reservation, request, guard.reader.prompts(request))[0]


@pytest.mark.parametrize("name", ["m", "alias"])
def test_the_served_name_and_its_aliases_are_known(name):
    guard, _ = _guard()
    assert _admit(guard, msgspec.structs.replace(_chat("a"), model=name)).prompt == [0, 0, 0, 1]


def test_a_star_stands_for_any_name():
    assert Names("m", frozenset({"*"})).known("whatever")
    assert Names("m", frozenset({"*", "b"})).listed() == ("m", "b")


def test_an_unknown_model_is_refused_before_a_slot_is_taken():
    guard, words = _guard()
    with pytest.raises(ModelNotFound):
        _reserve(guard, Request(Route.CHAT, "other", (Message("user", "a"),)))
    assert (guard.slots.free, words.calls) == (1, 0)


def test_no_slot_is_a_refusal_without_tokenising():
    guard, words = _guard()
    _reserve(guard, _chat())
    with pytest.raises(SlotsBusy) as refused:
        _reserve(guard, _chat(), x_stainless_lang="python")
    wait = refused.value.retry_after_ms
    assert 1 <= wait <= 30
    assert refused.value.message == f"Come back in {wait} ms."
    assert words.calls == 0


def test_the_true_length_tightens_the_reservation():
    guard, _ = _guard(slot_tokens=10_000)
    reservation = _reserve(guard, _chat("a" * 500))
    before = guard.slots.next_open_ms()
    guard.confirm(reservation, _chat(), guard.reader.prompts(_chat()))
    assert guard.slots.next_open_ms() < before


def test_what_bytes_alone_prove_too_long_is_422_without_tokenising():
    guard, words = _guard()
    with pytest.raises(Infeasible):
        _reserve(guard, _chat("a" * 404))
    assert (guard.slots.free, words.calls) == (1, 0)


def test_what_might_fit_is_tokenised_and_then_refused_with_its_slot_given_back():
    guard, words = _guard()
    with pytest.raises(ContextTooLong) as refused:
        _admit(guard, _chat("a" * 98))
    assert refused.value.param == "messages"
    assert (guard.slots.free, words.calls) == (1, 1)


def test_a_slot_can_be_filled_to_the_last_token():
    guard, _ = _guard()
    assert _admit(guard, _chat("a" * 87)).max_tokens == 10
    with pytest.raises(ContextTooLong):
        _admit(_guard()[0], _chat("a" * 88))


def test_the_default_number_of_tokens_is_cut_to_what_fits():
    guard, _ = _guard()
    assert _admit(guard, _chat("a" * 87, max_tokens=None)).max_tokens == 10


def test_a_chosen_number_of_tokens_that_equals_the_default_is_not_cut():
    guard, _ = _guard()
    with pytest.raises(ContextTooLong):
        _admit(guard, _chat("a" * 87, max_tokens=50))


def test_more_token_ids_than_a_slot_holds_are_refused_before_a_slot_is_taken():
    guard, _ = _guard()
    with pytest.raises(ContextTooLong) as refused:
        _reserve(guard, _prompt((1,) * 101))
    assert refused.value.param == "prompt"
    assert guard.slots.free == 1


@pytest.mark.parametrize("token_id", [-1, 300])
def test_a_token_id_outside_the_vocabulary_is_refused(token_id):
    guard, _ = _guard()
    with pytest.raises(InvalidRequest):
        guard.reader.tokenise(_prompt((1, token_id)))


def test_a_bare_prompt_begins_with_the_first_token_where_the_model_wants_it():
    assert _guard(bos_id=7, add_bos=True)[0].reader.tokenise(_prompt("a")) == [7, 97]
    assert _guard(bos_id=7)[0].reader.tokenise(_prompt("a")) == [97]
    assert _guard(bos_id=7)[0].reader.tokenise(_prompt("")) == [7]


def test_an_empty_prompt_without_a_first_token_is_refused_and_gives_its_slot_back():
    guard, _ = _guard()
    with pytest.raises(InvalidRequest):
        _admit(guard, _prompt(""))
    assert guard.slots.free == 1


@pytest.mark.parametrize(("text", "long"), [("a" * LONG_TEXT_BYTES, False), ("é" * (LONG_TEXT_BYTES // 2 + 1), True)])
def test_long_text_is_marked_for_the_helper_thread(text, long):
    guard, _ = _guard(slot_tokens=10_000)
    assert _reserve(guard, _chat(text)).long is long


def test_a_closed_guard_admits_nothing_and_says_why():
    guard, _ = _guard()
    guard.close(Unavailable("shutting down"))
    with pytest.raises(Unavailable, match="shutting down"):
        _reserve(guard, _chat())


def test_a_stalled_guard_admits_nothing_until_the_engine_moves_again():
    guard, _ = _guard()
    guard.stall(Unavailable("stands still"))
    with pytest.raises(Unavailable, match="stands still"):
        _reserve(guard, _chat())
    guard.stall(None)
    assert _reserve(guard, _chat()).slot == 0


def test_a_default_number_of_tokens_is_cut_to_what_the_deadline_allows():
    guard, _ = _guard()
    assert _reserve(guard, _chat(max_tokens=None, deadline_ms=30)).max_tokens < 30


def test_a_number_of_tokens_that_only_bounds_is_cut_to_what_the_deadline_allows():
    guard, _ = _guard()
    assert _reserve(guard, _chat(max_tokens=50, fills_slot=True, deadline_ms=30)).max_tokens < 30


def test_a_chosen_number_of_tokens_that_can_never_be_in_time_is_422():
    guard, words = _guard()
    with pytest.raises(Infeasible):
        _reserve(guard, _chat(max_tokens=50, deadline_ms=20))
    assert words.calls == 0


def _booked() -> tuple[list[int], Guard, SlotsBusy]:
    """A clock, a guard whose only slot is free again, and the refusal that booked it for the usual request."""
    now = [0]
    guard, _ = _guard(now=lambda: now[0])
    first = _reserve(guard, _chat())
    with pytest.raises(SlotsBusy) as refused:
        _reserve(guard, _chat(), x_stainless_retry_count="0")
    guard.release(first)
    return now, guard, refused.value


def test_the_same_body_redeems_its_booking():
    now, guard, refusal = _booked()
    now[0] = refusal.retry_after_ms * MS
    assert refusal.ticket
    assert _reserve(guard, _chat(), x_stainless_retry_count="1").slot == 0
    assert not guard.slots.bookings


def test_a_booked_client_that_is_a_moment_early_is_held():
    now, guard, refusal = _booked()
    now[0] = (refusal.retry_after_ms - 4) * MS
    held = _reserve(guard, _chat(), x_stainless_retry_count="1")
    assert isinstance(held, Held)
    assert guard.resume(held) is None
    now[0] += 5 * MS
    assert guard.resume(held).slot == 0


def test_another_body_does_not_redeem_a_booking():
    now, guard, refusal = _booked()
    now[0] = refusal.retry_after_ms * MS
    with pytest.raises(SlotsBusy):
        guard.reserve(_chat(), _arrive(guard, _chat(), b"other", x_stainless_retry_count="1"))


@pytest.mark.parametrize(
    ("header", "value", "reads"),
    [("x_stainless_lang", "python", True), ("content_type", "application/grpc", True), ("accept", "*/*", False)],
)
def test_a_client_that_shows_no_sign_of_reading_milliseconds_is_booked_on_a_whole_second(header, value, reads):
    guard, _ = _guard()
    _reserve(guard, _chat())
    with pytest.raises(SlotsBusy) as refused:
        _reserve(guard, _chat(), **{header: value})
    assert (refused.value.retry_after_ms % 1000 == 0) is not reads


def test_the_last_attempt_of_a_stock_client_is_told_a_time_and_nothing_is_held_for_it():
    guard, _ = _guard()
    _reserve(guard, _chat())
    with pytest.raises(SlotsBusy) as refused:
        _reserve(guard, _chat(), x_stainless_retry_count="2")
    assert refused.value.ticket is None
    assert not guard.slots.bookings


# --- several answers


def test_every_answer_has_a_slot_and_the_work_of_its_own_prompt():
    guard, _ = _guard(slots=4)
    request = _prompt("ab", further=("cde",), n=2, max_tokens=5)
    reservation = _reserve(guard, request)
    generations = guard.confirm(reservation, request, guard.reader.prompts(request))
    assert len(set(reservation.slots)) == 4
    assert [len(generation.prompt) for generation in generations] == [2, 2, 3, 3]
    guard.release(reservation)
    assert guard.slots.free == 4


def test_one_prompt_that_is_too_long_gives_all_slots_back():
    guard, _ = _guard(slots=4)
    request = _prompt("ab", further=("a" * 200,), max_tokens=5)
    reservation = _reserve(guard, request)
    assert guard.slots.free == 2
    with pytest.raises(ContextTooLong):
        guard.confirm(reservation, request, guard.reader.prompts(request))
    assert guard.slots.free == 4


def test_too_few_slots_are_a_refusal_without_a_booking_and_without_tokenising():
    guard, words = _guard(slots=2)
    _reserve(guard, _chat())
    with pytest.raises(SlotsBusy) as refused:
        _reserve(guard, _chat(n=2))
    assert refused.value.ticket is None
    assert refused.value.retry_after_ms >= 1
    assert (guard.slots.free, len(guard.slots.bookings), words.calls) == (1, 0, 0)


def test_a_bias_outside_the_vocabulary_is_refused_by_name():
    guard, _ = _guard()
    request = _chat(sampling=Sampling(logit_bias=((300, 1.0),)))
    with pytest.raises(InvalidRequest) as refused:
        _admit(guard, request)
    assert refused.value.param == "logit_bias"


def test_a_prompt_that_is_scored_takes_more_chunks_and_each_costs_its_share():
    guard, _ = _guard(slot_tokens=10_000)
    guard._cost.scored_share = 0.5
    plain, scored = guard._work(120, 1), guard._work(120, 1, scored=True)
    assert (plain.chunks, scored.chunks) == (3, 10)
    assert scored.chunk_ns == 10 * (plain.full_ns // 2)


def test_answers_that_would_hold_each_other_up_for_too_long_are_refused_with_the_reason():
    guard, _ = _guard(slots=2)
    assert _reserve(guard, _chat(), x_slo_tpot_ms="1").slots  # one answer has nobody beside it
    guard, _ = _guard(slots=2)
    with pytest.raises(Infeasible) as refused:
        _reserve(guard, _chat(n=2), x_slo_tpot_ms="1")
    assert refused.value.param == "n"
    assert guard.slots.free == 2


# --- limits of keys


def _limited(guard: Guard, **quota: int) -> Identity:
    guard.budgets = Budgets(lambda: 1_728_043_200_000_000)
    return Identity("acme", b"k" * 16, quota=Quota(**quota), tier=Tier.DEFAULT)


def _reserve_as(guard: Guard, identity: Identity, request: Request):
    arrival = guard.arrive(request, {}, credential="peer", body=b"body", wall_ms=0, identity=identity)
    return guard.reserve(request, arrival)


def test_a_limit_is_judged_before_a_slot_is_asked_for():
    guard, words = _guard(slots=1)
    identity = _limited(guard, requests_per_minute=1)
    request = _chat()
    guard.confirm(_reserve_as(guard, identity, request), request, guard.reader.prompts(request))
    calls = words.calls
    with pytest.raises(RateLimited):  # and not SlotsBusy, which would book
        _reserve_as(guard, identity, request)
    assert words.calls == calls
    assert len(guard.admission.tickets) == 0


def test_a_refusal_for_lack_of_slots_gives_the_budget_back():
    guard, _ = _guard(slots=1)
    identity = _limited(guard, requests_per_minute=10, concurrent=1)
    _reserve(guard, _chat())
    for _ in range(3):
        with pytest.raises(SlotsBusy):
            _reserve_as(guard, identity, _chat())
    assert guard.budgets.levels(identity)[0].left == 10


def test_a_reservation_that_is_released_gives_slot_and_budget_back():
    guard, _ = _guard(slots=1)
    identity = _limited(guard, concurrent=1, tokens_per_minute=1000)
    for _ in range(3):
        guard.release(_reserve_as(guard, identity, _chat()))
    assert guard.slots.free == 1
    assert guard.budgets.levels(identity)[1].left == 1000


def test_the_true_length_is_judged_and_not_the_bound():
    guard, _ = _guard(slots=1)
    identity = _limited(guard, tokens_per_minute=20)
    request = _chat("a" * 6)  # 3 + 6 tokens and an answer of 10: 19, though the bound is larger
    reservation = _reserve_as(guard, identity, request)
    assert guard.confirm(reservation, request, guard.reader.prompts(request))[0].max_tokens == 10


def test_a_true_length_over_the_limit_is_refused_and_gives_everything_back():
    guard, _ = _guard(slots=1)
    identity = _limited(guard, tokens_per_minute=20)
    request = _chat("a" * 9)
    reservation = _reserve_as(guard, identity, request)
    with pytest.raises(BudgetSpent):
        guard.confirm(reservation, request, guard.reader.prompts(request))
    assert guard.slots.free == 1
    assert guard.budgets.levels(identity)[1].left == 20


def test_a_key_caps_the_tier_of_its_requests():
    guard, _ = _guard(slots=1)
    reservation = _reserve_as(guard, _limited(guard), _chat(tier=Tier.PRIORITY))
    assert reservation.wish.tier is Tier.DEFAULT


def test_a_key_for_other_models_is_forbidden_even_to_count():
    guard, _ = _guard()
    identity = msgspec.structs.replace(_limited(guard), models=frozenset({"other"}))
    with pytest.raises(PermissionRefused):
        _reserve_as(guard, identity, _chat())
    with pytest.raises(PermissionRefused):
        guard.check(_chat(), identity)
