"""Who is booked, who redeems a booking, and what several answers to one request take."""

from __future__ import annotations

import pytest
from small_guard import MS, arrive, chat, prompt, reserve, small_guard

from zerolayer.errors import BeyondHorizon, ContextTooLong, Infeasible, SlotsBusy
from zerolayer.guard.deadline.reservation import Held
from zerolayer.guard.freshness import Freshness
from zerolayer.guard.guard import Guard


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


# --- who comes back in another way


def kept_and_broken(guard: Guard) -> tuple[int, int]:
    return guard.admission.attendance.kept, guard.admission._promises.outcomes()["broken"]


@pytest.mark.parametrize("hurry", [{"x_zl_deadline_ms": "3"}, {"x_slo_ttft_ms": "0.5"}, {"x_slo_tpot_ms": "0.01"}])
def test_who_comes_back_with_less_time_than_it_takes_is_told_so_and_what_was_booked_stays(hurry):
    now, guard, refusal = booked()
    now[0] = refusal.retry_after_ms * MS
    with pytest.raises(Infeasible):
        reserve(guard, chat(), x_stainless_retry_count="1", **hurry)
    assert kept_and_broken(guard) == (0, 0)
    assert reserve(guard, chat(), x_stainless_retry_count="1").booked


def test_who_comes_back_with_less_time_than_can_be_promised_is_decided_anew():
    now, guard, refusal = booked()
    now[0] = refusal.retry_after_ms * MS
    hurried = reserve(guard, chat(), x_stainless_retry_count="1", x_zl_deadline_ms="11")  # ten steps of a millisecond
    assert isinstance(hurried, BeyondHorizon)
    assert kept_and_broken(guard) == (0, 0)
    assert not guard.slots.bookings


def test_who_comes_back_with_a_closer_cadence_than_was_booked_has_nobody_beside_it():
    now = [0]
    guard, _ = small_guard(slots=2, now=lambda: now[0])
    first, second = (reserve(guard, chat(), x_stainless_retry_count="0") for _ in range(2))
    refused = reserve(guard, chat(), x_stainless_retry_count="0")
    assert isinstance(refused, SlotsBusy)
    guard.release(first)
    now[0] = refused.retry_after_ms * MS
    refused = reserve(guard, chat(), x_stainless_retry_count="1", x_slo_tpot_ms="1")
    assert isinstance(refused, SlotsBusy | BeyondHorizon)  # somebody's prompt is yet to be read
    guard.release(second)


def test_a_deadline_for_all_attempts_shrinks_on_the_way_and_the_booking_is_kept():
    now = [0]
    guard, _ = small_guard(now=lambda: now[0])
    first = reserve(guard, chat())
    refused = reserve(guard, chat(), x_stainless_retry_count="0", x_zl_deadline_ms="2000")
    assert isinstance(refused, SlotsBusy)
    guard.release(first)
    now[0] = refused.retry_after_ms * MS
    left = 2000 - refused.retry_after_ms - 5
    assert reserve(guard, chat(), x_stainless_retry_count="1", x_zl_deadline_ms=str(left)).booked


def ask_by_hand(now: list[int], guard: Guard, attempts: int = 10) -> int:
    """A loop around a client that counts each attempt as its first; how many it makes."""
    for attempt in range(1, attempts):
        answer = reserve(guard, chat(), x_stainless_retry_count="0")
        if not isinstance(answer, SlotsBusy):
            guard.release(answer)
            return attempt
        now[0] += answer.retry_after_ms * MS
        guard.admission.sweep(now[0])
    return attempts


def test_whoever_retries_by_hand_is_served_at_its_time_once_that_is_known():
    """As applications do that turn the SDK's retries off: nothing that they send says that they ask again."""
    now = [0]
    guard, _ = small_guard(now=lambda: now[0])
    made = []
    for _ in range(4):
        busy = reserve(guard, chat("another"))
        refused = reserve(guard, chat(), x_stainless_retry_count="0")
        assert isinstance(refused, SlotsBusy)
        guard.release(busy)
        now[0] += refused.retry_after_ms * MS
        made.append(ask_by_hand(now, guard))
        now[0] += 1_000 * MS
        guard.admission.sweep(now[0])
    assert made[0] > 1
    assert made[1:] == [1, 1, 1]
    assert guard.admission.attendance.by_hand("peer")


def test_who_has_ever_said_that_it_asks_again_is_never_taken_for_one_that_does_not():
    now, guard, refusal = booked()
    now[0] = refusal.retry_after_ms * MS
    guard.release(reserve(guard, chat(), x_stainless_retry_count="1"))
    busy = reserve(guard, chat("another"))
    refused = reserve(guard, chat(), x_stainless_retry_count="0")
    assert isinstance(refused, SlotsBusy)
    guard.release(busy)
    now[0] += refused.retry_after_ms * MS
    other = reserve(guard, chat(), x_stainless_retry_count="0")
    assert isinstance(other, SlotsBusy)  # somebody else with the same words
    now[0] += 300 * MS
    guard.admission.sweep(now[0])
    assert guard.admission.attendance.lapsed == 2
    assert not guard.admission.attendance.by_hand("peer")


# --- inputs that age


@pytest.mark.parametrize(
    ("policy", "old_ms", "booked"), [("refuse", 950, 0), ("wait", 950, 0), ("flag", 950, 1), ("refuse", 0, 1)]
)
def test_nothing_is_booked_for_an_input_that_is_too_old_by_then(policy, old_ms, booked):
    guard, _ = small_guard()
    guard.freshness = Freshness(0, policy)
    reserve(guard, chat(max_tokens=90))
    stamped = {"x_zl_event_time_ms": "1000", "x_zl_max_age_ms": "1000", "x_stainless_retry_count": "0"}
    given = {name.replace("_", "-").encode(): value.encode() for name, value in stamped.items()}
    arrival = guard.arrive(chat(), given, credential="peer", body=b"body", wall_ms=lambda: 1000 + old_ms)
    assert isinstance(guard.reserve(chat(), arrival), SlotsBusy if booked else BeyondHorizon)
    assert len(guard.slots.bookings) == booked


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
