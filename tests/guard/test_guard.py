"""The order of decisions, and that every refusal gives back what it took."""

from __future__ import annotations

import msgspec
import pytest

from zerolayer.errors import ContextTooLong, Infeasible, InvalidRequest, ModelNotFound, SlotsBusy, Unavailable
from zerolayer.guard.deadline import SlotTable
from zerolayer.guard.guard import LONG_TEXT_BYTES, Guard, Names, Shape
from zerolayer.wire.schema import Message, Request, Route

MS = 1_000_000
SHAPE = Shape(slot_tokens=100, default_max_tokens=50, vocabulary=300, longest_piece_bytes=4, template_tokens=3)


class Words:
    """Encodes and counts: one token a letter, three around a message."""

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, given):
        self.calls += 1
        if isinstance(given, str):
            return [ord(letter) for letter in given]
        return [0, 0, 0] + [1] * len(given[-1].content)


def _guard(slots: int = 1, **shape: object) -> tuple[Guard, Words]:
    words = Words()
    guard = Guard(
        names=Names("m", frozenset({"alias"})),
        shape=msgspec.structs.replace(SHAPE, **shape),
        slots=SlotTable(slots, lambda: 0),
        encoder=words,
        template=words,
        predict_ns=lambda prompt, tokens: (prompt + tokens) * MS,
        refusal="Come back in {ms} ms.",
    )
    return guard, words


def _chat(text: str = "hello", **members: object) -> Request:
    return Request(Route.CHAT, "m", (Message("user", text),), **{"max_tokens": 10, **members})


def _prompt(prompt: object, **members: object) -> Request:
    return Request(Route.COMPLETIONS, "m", prompt=prompt, **{"max_tokens": 10, **members})


def _admit(guard: Guard, request: Request):
    reservation = guard.reserve(request)
    return guard.confirm(reservation, request, guard.prompt(request).ids)


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
        guard.reserve(Request(Route.CHAT, "other", (Message("user", "a"),)))
    assert (guard.slots.free, words.calls) == (1, 0)


def test_no_slot_is_a_refusal_without_tokenising():
    guard, words = _guard()
    guard.reserve(_chat())
    with pytest.raises(SlotsBusy) as refused:
        guard.reserve(_chat())
    # min(bytes + template, slot) + max_tokens on the upper bound: 5 + 3 * 2 + 1 + 10
    assert refused.value.retry_after_ms == 22
    assert refused.value.message == "Come back in 22 ms."
    assert words.calls == 0


def test_the_true_length_tightens_the_reservation():
    guard, _ = _guard()
    _admit(guard, _chat())
    assert guard.slots.next_free_ms() == 8 + 10


def test_what_bytes_alone_prove_too_long_is_422_without_tokenising():
    guard, words = _guard()
    with pytest.raises(Infeasible):
        guard.reserve(_chat("a" * 404))
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
        guard.reserve(_prompt((1,) * 101))
    assert refused.value.param == "prompt"
    assert guard.slots.free == 1


@pytest.mark.parametrize("token_id", [-1, 300])
def test_a_token_id_outside_the_vocabulary_is_refused(token_id):
    guard, _ = _guard()
    with pytest.raises(InvalidRequest):
        guard.tokenise(_prompt((1, token_id)))


def test_a_bare_prompt_begins_with_the_first_token_where_the_model_wants_it():
    assert _guard(bos_id=7, add_bos=True)[0].tokenise(_prompt("a")) == [7, 97]
    assert _guard(bos_id=7)[0].tokenise(_prompt("a")) == [97]
    assert _guard(bos_id=7)[0].tokenise(_prompt("")) == [7]


def test_an_empty_prompt_without_a_first_token_is_refused_and_gives_its_slot_back():
    guard, _ = _guard()
    with pytest.raises(InvalidRequest):
        _admit(guard, _prompt(""))
    assert guard.slots.free == 1


@pytest.mark.parametrize(("text", "long"), [("a" * LONG_TEXT_BYTES, False), ("é" * (LONG_TEXT_BYTES // 2 + 1), True)])
def test_long_text_is_marked_for_the_helper_thread(text, long):
    guard, _ = _guard(slot_tokens=10_000)
    assert guard.reserve(_chat(text)).long is long


def test_a_closed_guard_admits_nothing_and_says_why():
    guard, _ = _guard()
    guard.close(Unavailable("shutting down"))
    with pytest.raises(Unavailable, match="shutting down"):
        guard.reserve(_chat())
