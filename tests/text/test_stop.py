"""Stop strings: found wherever token borders fall, and never shown in part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerolayer.text.stop import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    """All that is shown of a generation, and whether it stopped."""
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown += text
        if stopped:
            return shown, True
    return shown + matcher.flush(), False


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """By the definition: the stop string that ends first, of those the longest."""
    for end in range(len(text) + 1):
        lengths = [len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def test_a_stop_string_ends_the_text_before_it() -> None:
    assert run(["END"], ["one ENDtwo"]) == ("one ", True)


def test_a_stop_string_is_found_across_pieces() -> None:
    assert run(["END"], ["one E", "N", "Dtwo"]) == ("one ", True)


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.push("one EN") == ("one ", False)


def test_text_that_did_not_become_a_stop_string_is_shown() -> None:
    matcher = StopMatcher(["END"])
    matcher.push("one EN")
    assert matcher.push("T") == ("ENT", False)


def test_flush_shows_what_was_held_back() -> None:
    matcher = StopMatcher(["END"])
    matcher.push("one EN")
    assert matcher.flush() == "EN"


def test_nothing_is_shown_after_the_stop() -> None:
    matcher = StopMatcher(["END"])
    matcher.push("END")
    assert (matcher.push("more"), matcher.flush()) == (("", True), "")


def test_without_stop_strings_all_is_shown_at_once() -> None:
    assert StopMatcher([]).push("anything") == ("anything", False)


def test_an_empty_stop_string_stops_nothing() -> None:
    assert run(["", "x"], ["ab"]) == ("ab", False)


def test_of_two_stop_strings_that_end_together_the_longer_counts() -> None:
    assert run(["c", "abc"], ["xabc"]) == ("x", True)


@given(
    st.lists(st.text("ab", max_size=4), max_size=4),
    st.lists(st.text("abc", max_size=4), max_size=10),
)
def test_the_result_does_not_depend_on_how_the_text_is_cut(stops: list[str], pieces: list[str]) -> None:
    assert run(stops, pieces) == expected(stops, "".join(pieces))


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), st.lists(st.text("abc"), max_size=8))
def test_no_more_is_held_back_than_the_longest_stop_string_less_one(stops: list[str], pieces: list[str]) -> None:
    matcher = StopMatcher(stops)
    given_, shown, stopped = "", "", False
    for piece in pieces:
        text, stopped = matcher.push(piece)
        given_, shown = given_ + piece, shown + text
        assert stopped or len(given_) - len(shown) < max(map(len, stops))
        if stopped:
            break
    assert given_.startswith(shown)
