"""The order of decisions, and that every refusal gives back what it took."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_guard import admit, chat, prompt, reserve, small_guard

from zerolayer.errors import ContextTooLong, Infeasible, InvalidRequest, ModelNotFound, SlotsBusy, Unavailable
from zerolayer.guard.deadline.reservation import Reservation
from zerolayer.guard.guard import LONG_TEXT_BYTES, Guard
from zerolayer.guard.identity import NOBODY
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.guard.shape import Names
from zerolayer.wire.schema import Message, Request, Route, Sampling


@pytest.mark.parametrize("name", ["m", "alias"])
def test_the_served_name_and_its_aliases_are_known(name):
    guard, _ = small_guard()
    assert list(admit(guard, msgspec.structs.replace(chat("a"), model=name)).prompt) == [0, 0, 0, 1]


def test_a_star_stands_for_any_name():
    assert Names("m", frozenset({"*"})).known("whatever")
    assert Names("m", frozenset({"*", "b"})).listed() == ("m", "b")


def test_an_unknown_model_is_refused_before_a_slot_is_taken():
    guard, words = small_guard()
    with pytest.raises(ModelNotFound):
        reserve(guard, Request(Route.CHAT, "other", (Message("user", "a"),)))
    assert (guard.slots.free, words.calls) == (1, 0)


def test_no_slot_is_a_refusal_without_tokenising():
    guard, words = small_guard()
    reserve(guard, chat())
    refused = reserve(guard, chat(), x_stainless_lang="python")
    assert isinstance(refused, SlotsBusy)
    wait = refused.retry_after_ms
    assert 1 <= wait <= 30
    assert refused.message == f"Come back in {wait} ms."
    assert words.calls == 0


def test_the_true_length_tightens_the_reservation():
    guard, _ = small_guard(slot_tokens=10_000)
    reservation = reserve(guard, chat("a" * 500))
    before = guard.slots.next_open_ms()
    guard.confirm(reservation, chat(), guard.reader.prompts(chat()))
    assert guard.slots.next_open_ms() < before


def test_what_bytes_alone_prove_too_long_is_422_without_tokenising():
    guard, words = small_guard()
    with pytest.raises(Infeasible):
        reserve(guard, chat("a" * 404))
    assert (guard.slots.free, words.calls) == (1, 0)


def test_what_might_fit_is_tokenised_and_then_refused_with_its_slot_given_back():
    guard, words = small_guard()
    with pytest.raises(ContextTooLong) as refused:
        admit(guard, chat("a" * 98))
    assert refused.value.param == "messages"
    assert (guard.slots.free, words.calls) == (1, 1)


def test_a_slot_can_be_filled_to_the_last_token():
    guard, _ = small_guard()
    assert admit(guard, chat("a" * 87)).max_tokens == 10
    with pytest.raises(ContextTooLong):
        admit(small_guard()[0], chat("a" * 88))


def test_the_default_number_of_tokens_is_cut_to_what_fits():
    guard, _ = small_guard()
    assert admit(guard, chat("a" * 87, max_tokens=None)).max_tokens == 10


@pytest.mark.parametrize(("asked", "said"), [(None, "leaves no room for an answer"), (5, "asks for 5 more")])
def test_who_names_no_number_of_tokens_is_not_told_to_lower_it(asked, said):
    with pytest.raises(ContextTooLong) as refused:
        admit(small_guard()[0], chat("a" * 98, max_tokens=asked))
    assert said in refused.value.message
    assert ("lower max_tokens" in refused.value.message) == (asked is not None)


def test_a_chosen_number_of_tokens_that_equals_the_default_is_not_cut():
    guard, _ = small_guard()
    with pytest.raises(ContextTooLong):
        admit(guard, chat("a" * 87, max_tokens=50))


def test_more_token_ids_than_a_slot_holds_are_refused_before_a_slot_is_taken():
    guard, _ = small_guard()
    with pytest.raises(ContextTooLong) as refused:
        reserve(guard, prompt((1,) * 101))
    assert refused.value.param == "prompt"
    assert guard.slots.free == 1


@pytest.mark.parametrize("token_id", [-1, 300])
def test_a_token_id_outside_the_vocabulary_is_refused(token_id):
    guard, _ = small_guard()
    with pytest.raises(InvalidRequest):
        guard.reader.tokenise(prompt((1, token_id)))


def test_a_bare_prompt_begins_with_the_first_token_where_the_model_wants_it():
    assert small_guard(bos_id=7, add_bos=True)[0].reader.tokenise(prompt("a")) == [7, 97]
    assert small_guard(bos_id=7)[0].reader.tokenise(prompt("a")) == [97]
    assert small_guard(bos_id=7)[0].reader.tokenise(prompt("")) == [7]


def test_an_empty_prompt_without_a_first_token_is_refused_and_gives_its_slot_back():
    guard, _ = small_guard()
    with pytest.raises(InvalidRequest):
        admit(guard, prompt(""))
    assert guard.slots.free == 1


@pytest.mark.parametrize(("text", "long"), [("a" * LONG_TEXT_BYTES, False), ("é" * (LONG_TEXT_BYTES // 2 + 1), True)])
def test_long_text_is_marked_for_the_helper_thread(text, long):
    guard, _ = small_guard(slot_tokens=10_000)
    assert reserve(guard, chat(text)).long is long


def test_a_closed_guard_admits_nothing_and_says_why():
    guard, _ = small_guard()
    guard.close(Unavailable("shutting down"))
    with pytest.raises(Unavailable, match="shutting down"):
        reserve(guard, chat())


def test_a_stalled_guard_admits_nothing_until_the_engine_moves_again():
    guard, _ = small_guard()
    guard.stall(Unavailable("stands still"))
    with pytest.raises(Unavailable, match="stands still"):
        reserve(guard, chat())
    guard.stall(None)
    assert reserve(guard, chat()).slot == 0


def test_a_default_number_of_tokens_is_cut_to_what_the_deadline_allows():
    guard, _ = small_guard()
    assert reserve(guard, chat(max_tokens=None, deadline_ms=30)).max_tokens < 30


def test_a_number_of_tokens_that_only_bounds_is_cut_to_what_the_deadline_allows():
    guard, _ = small_guard()
    assert reserve(guard, chat(max_tokens=50, fills_slot=True, deadline_ms=30)).max_tokens < 30


def test_a_chosen_number_of_tokens_that_can_never_be_in_time_is_422():
    guard, words = small_guard()
    with pytest.raises(Infeasible):
        reserve(guard, chat(max_tokens=50, deadline_ms=20))
    assert words.calls == 0


def test_a_bias_outside_the_vocabulary_is_refused_by_name():
    guard, _ = small_guard()
    request = chat(sampling=Sampling(logit_bias=((300, 1.0),)))
    with pytest.raises(InvalidRequest) as refused:
        admit(guard, request)
    assert refused.value.param == "logit_bias"


def test_a_prompt_that_is_scored_takes_more_chunks_and_each_costs_its_share():
    guard, _ = small_guard(slot_tokens=10_000)
    guard._cost.scored_share = 0.5
    plain, scored = guard.work(120, 1), guard.work(120, 1, scored=True)
    assert (plain.chunks, scored.chunks) == (3, 10)
    assert scored.chunk_ns == 10 * (plain.full_ns // 2)


def _experienced(guard: Guard, size: int, tokens: int) -> None:
    """Texts of this size had so many tokens."""
    for _ in range(32):
        guard._texts.of(NOBODY).observe(size, tokens)


def test_a_presumed_length_is_what_others_are_decided_by_until_the_true_one_is_known():
    guard, words = small_guard(2, slot_tokens=1000)
    text = chat("a" * 500)
    size = reserve(guard, text).size
    guard.slots.release(0)
    guard.slots.release(1)
    _experienced(guard, size, 200)
    reservation = reserve(guard, text)
    claimed = guard.slots.next_open_ms(2)
    presumed = guard.presume(text, reservation)
    assert (presumed.presumed, presumed.slot, words.calls) == (211, reservation.slot, 0)
    believed = guard.slots.next_open_ms(2)
    short = [Prompt([1] * 120)]
    assert guard.settle(presumed, short) is presumed
    assert guard.slots.next_open_ms(2) < believed < claimed
    (generation,) = guard.confirm(presumed, text, short)
    assert len(generation.prompt) == 120


def test_a_text_that_is_longer_than_presumed_has_what_it_needs_where_that_is_free():
    guard, _ = small_guard(2, slot_tokens=1000)
    text = chat("a" * 500)
    _experienced(guard, 506 + 1, 200)
    presumed = guard.presume(text, reserve(guard, text))
    long = [Prompt([1] * 503)]
    again = guard.settle(presumed, long)
    assert (again.presumed, guard.slots.free) == (0, 1)
    (generation,) = guard.confirm(again, text, long)
    assert len(generation.prompt) == 503
    assert guard.slots.is_feasible()


def test_a_text_that_is_longer_than_presumed_is_refused_where_others_were_promised_its_time():
    guard, _ = small_guard(1, slot_tokens=1000)
    text = chat("a" * 500)
    _experienced(guard, 507, 100)
    presumed = guard.presume(text, reserve(guard, text))
    booked = reserve(guard, chat("b" * 500), x_stainless_retry_count="0")
    assert booked.ticket
    refused = guard.settle(presumed, [Prompt([1] * 503)])
    assert isinstance(refused, SlotsBusy)
    assert (guard.slots.free, presumed.hold.settled, len(guard.slots.bookings)) == (1, True, 2)
    assert guard.slots.is_feasible()


def test_what_was_booked_or_is_known_or_is_scored_presumes_nothing():
    guard, _ = small_guard(4, slot_tokens=1000)
    ids = prompt([1, 2, 3])
    assert guard.presume(ids, known := reserve(guard, ids)) is known
    text = chat("a" * 50)
    redeemed = msgspec.structs.replace(reserve(guard, text), booked=True)
    assert guard.presume(text, redeemed) is redeemed
    scored = prompt("a" * 50, echo=True, sampling=Sampling(top_logprobs=1))
    assert guard.presume(scored, other := reserve(guard, scored)) is other


LONGER_AFTER_ALL = [(1, False), (195, True), (49, False), (95, False), (1, True), (94, False)]


@example([(letters, 1.0, again, 400) for letters, again in LONGER_AFTER_ALL], 48)
@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.floats(0.05, 1), st.booleans(), st.sampled_from([400, 60_000])), max_size=30
    ),
    st.integers(20, 300),
)
def test_whatever_turns_out_of_presumed_lengths_every_promise_can_be_kept(texts, usual):
    """Each is decided before the text of any before it is known; some are refused and booked in between."""
    guard, _ = small_guard(4, slot_tokens=500)
    for size in range(1, 410):
        if size % 8 == 0:
            _experienced(guard, size, min(size, usual))
    waiting = []
    for letters, share, again, deadline_ms in texts:
        text = chat("a" * letters, deadline_ms=deadline_ms)
        try:
            answer = reserve(guard, text, x_stainless_retry_count="0")
            if isinstance(answer, Reservation):
                answer = guard.presume(text, answer)
        except Infeasible:
            continue
        if isinstance(answer, Reservation) and answer.presumed:
            waiting.append((answer, text, [Prompt([1] * max(1, int(share * (letters + 6))))]))
        assert guard.slots.is_feasible()
        if again:
            _settled(guard, waiting)
    _settled(guard, waiting)


def _settled(guard: Guard, waiting: list) -> None:
    for reservation, text, prompts in waiting:
        try:
            answer = guard.settle(reservation, prompts)
            if isinstance(answer, Reservation):
                guard.confirm(answer, text, prompts)
        except (Infeasible, InvalidRequest, SlotsBusy):
            assert reservation.hold.settled
        assert guard.slots.is_feasible()
    waiting.clear()
