"""Who is booked, who redeems a booking, and what several answers to one request take."""

from __future__ import annotations

import pytest
from small_guard import MS, arrive, chat, prompt, reserve, small_guard

from zerolayer.errors import ContextTooLong, Infeasible, SlotsBusy
from zerolayer.guard.guard import Guard, Held


def booked() -> tuple[list[int], Guard, SlotsBusy]:
    """A clock, a guard whose only slot is free again, and the refusal that booked it for the usual request."""
    now = [0]
    guard, _ = small_guard(now=lambda: now[0])
    first = reserve(guard, chat())
    refused = reserve(guard, chat(), x_stainless_retry_count="0")
    assert isinstance(refused, SlotsBusy)
    guard.release(first)
    return now, guard, refused


def test_the_same_body_redeems_its_booking():
    now, guard, refusal = booked()
    now[0] = refusal.retry_after_ms * MS
    assert refusal.ticket
    assert reserve(guard, chat(), x_stainless_retry_count="1").slot == 0
    assert not guard.slots.bookings


def test_a_booked_client_that_is_a_moment_early_is_held():
    now, guard, refusal = booked()
    now[0] = (refusal.retry_after_ms - 4) * MS
    held = reserve(guard, chat(), x_stainless_retry_count="1")
    assert isinstance(held, Held)
    assert guard.resume(held) is None
    now[0] += 5 * MS
    assert guard.resume(held).slot == 0


def test_another_body_does_not_redeem_a_booking():
    now, guard, refusal = booked()
    now[0] = refusal.retry_after_ms * MS
    other = arrive(guard, chat(), b"other", x_stainless_retry_count="1")
    assert isinstance(guard.reserve(chat(), other), SlotsBusy)


@pytest.mark.parametrize(
    ("header", "value", "reads"),
    [("x_stainless_lang", "python", True), ("content_type", "application/grpc", True), ("accept", "*/*", False)],
)
def test_a_client_that_shows_no_sign_of_reading_milliseconds_is_booked_on_a_whole_second(header, value, reads):
    guard, _ = small_guard()
    reserve(guard, chat())
    refused = reserve(guard, chat(), **{header: value})
    assert (refused.retry_after_ms % 1000 == 0) is not reads


def test_the_last_attempt_of_a_stock_client_is_told_a_time_and_nothing_is_held_for_it():
    guard, _ = small_guard()
    reserve(guard, chat())
    refused = reserve(guard, chat(), x_stainless_retry_count="2")
    assert isinstance(refused, SlotsBusy)
    assert refused.ticket is None
    assert not guard.slots.bookings


# --- several answers


def test_every_answer_has_a_slot_and_the_work_of_its_own_prompt():
    guard, _ = small_guard(slots=4)
    request = prompt("ab", further=("cde",), n=2, max_tokens=5)
    reservation = reserve(guard, request)
    generations = guard.confirm(reservation, request, guard.reader.prompts(request))
    assert len(set(reservation.slots)) == 4
    assert [len(generation.prompt) for generation in generations] == [2, 2, 3, 3]
    guard.release(reservation)
    assert guard.slots.free == 4


def test_one_prompt_that_is_too_long_gives_all_slots_back():
    guard, _ = small_guard(slots=4)
    request = prompt("ab", further=("a" * 200,), max_tokens=5)
    reservation = reserve(guard, request)
    assert guard.slots.free == 2
    with pytest.raises(ContextTooLong):
        guard.confirm(reservation, request, guard.reader.prompts(request))
    assert guard.slots.free == 4


def test_too_few_slots_are_a_refusal_without_a_booking_and_without_tokenising():
    guard, words = small_guard(slots=2)
    reserve(guard, chat())
    refused = reserve(guard, chat(n=2))
    assert isinstance(refused, SlotsBusy)
    assert refused.ticket is None
    assert refused.retry_after_ms >= 1
    assert (guard.slots.free, len(guard.slots.bookings), words.calls) == (1, 0, 0)


def test_answers_that_would_hold_each_other_up_for_too_long_are_refused_with_the_reason():
    guard, _ = small_guard(slots=2)
    assert reserve(guard, chat(), x_slo_tpot_ms="1").slots  # one answer has nobody beside it
    guard, _ = small_guard(slots=2)
    with pytest.raises(Infeasible) as refused:
        reserve(guard, chat(n=2), x_slo_tpot_ms="1")
    assert refused.value.param == "n"
    assert guard.slots.free == 2
