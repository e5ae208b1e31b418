"""What is kept of a conversation that does not fit: system messages, the newest turns, and a mark where it was cut."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.guard.prompts.overflow import MARKER, newest_turns, without_repeats
from zerolayer.wire.schema import Message


def encode(messages: Sequence[Message]) -> list[int]:
    """A token for each letter and one around each message; the role is the first."""
    return [ord(letter) for message in messages for letter in f"{message.role[0]}{message.content}"]


def talk(*contents: str, system: str = "") -> list[Message]:
    """User and assistant in turn, after the system message."""
    first = [Message("system", system)] if system else []
    return first + [Message(("user", "assistant")[at % 2], content) for at, content in enumerate(contents)]


TALK = talk("one", "ONE", "two", "TWO", "three", system="be brief")


def marked(content: str) -> str:
    return f"{MARKER}\n{content}"


def test_as_many_of_the_newest_turns_are_kept_as_fit() -> None:
    wanted = encode([TALK[0], Message("user", marked("two")), *TALK[4:]])
    cut = newest_turns(TALK, encode, len(wanted))
    assert cut is not None
    assert (cut.ids, cut.dropped) == (wanted, 2)


def test_with_one_token_less_another_turn_is_left_out() -> None:
    wanted = encode([TALK[0], Message("user", marked("three"))])
    cut = newest_turns(TALK, encode, len(encode([TALK[0], Message("user", marked("two")), *TALK[4:]])) - 1)
    assert cut is not None
    assert (cut.ids, cut.dropped) == (wanted, 4)


def test_nothing_is_kept_in_pieces() -> None:
    assert newest_turns(TALK, encode, len(encode([TALK[0], Message("user", marked("three"))])) - 1) is None


def test_a_single_turn_has_nothing_to_leave_out() -> None:
    assert newest_turns(talk("one", system="s"), encode, 3) is None


def test_without_a_system_message_the_mark_comes_first() -> None:
    cut = newest_turns(talk("one", "ONE", "two"), encode, 30)
    assert cut is not None
    assert cut.ids == encode([Message("user", marked("two"))])


def test_a_turn_begins_with_the_user() -> None:
    """Otherwise the conversation would begin with an answer, which many templates refuse."""
    messages = [*talk("one", "ONE"), Message("assistant", "more"), Message("user", "two")]
    cut = newest_turns(messages, encode, 1000)
    assert cut is not None
    assert cut.ids == encode([Message("user", marked("two"))])


words = st.text("ab", max_size=6)
conversations = st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), words), min_size=1, max_size=12)


@given(st.lists(st.builds(Message, st.just("system"), words), max_size=2), conversations, st.integers(0, 120))
def test_what_is_kept_is_the_system_messages_and_the_longest_newest_part_that_fits(
    system: list[Message], rest: list[Message], most: int
) -> None:
    cut = newest_turns([*system, *rest], encode, most)
    parts = [
        [*system, Message("user", marked(rest[at].content)), *rest[at + 1 :]]
        for at in range(1, len(rest))
        if rest[at].role == "user"
    ]
    fitting = [part for part in parts if len(encode(part)) <= most]
    assert (cut is None) == (not fitting)
    if cut is not None:
        assert cut.ids == encode(fitting[0])
        assert cut.dropped == len(system) + len(rest) - len(fitting[0])


def test_a_repeated_user_message_is_said_once() -> None:
    assert without_repeats(talk("a")[:1] * 3 + talk("b")) == [*talk("a"), *talk("b")]


def test_a_message_that_comes_again_after_an_answer_stays() -> None:
    assert without_repeats(talk("a", "yes", "a")) == talk("a", "yes", "a")


def test_repeated_answers_stay() -> None:
    assert without_repeats([Message("assistant", "x")] * 2) == [Message("assistant", "x")] * 2
