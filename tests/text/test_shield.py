"""Names of control tokens in people's texts are broken for the rendering, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.text.shield import Shield

NAMES = {"<|im_start|>": 1, "<|im_end|>": 2, "<s>": 3, "</s>": 4, "<s>>": 5, "\u2581": 6}
SHIELD = Shield(NAMES)
MARK = "\U000f0000"
PIECES = st.sampled_from([*NAMES, "<", ">", "<|im", "_end|>", "|>", "s>", "<s", "x", " ", "\n"])
TEXTS = st.lists(PIECES, max_size=6).map("".join)


def tokens(text: str) -> list[int]:
    return [token for _, token in SHIELD.split(text) if token is not None]


def test_a_text_is_cut_at_names() -> None:
    assert list(SHIELD.split("a<s>b</s>")) == [("a", 3), ("b", 4), ("", None)]


def test_of_two_names_at_one_place_the_longer_counts() -> None:
    assert tokens("<s>>") == [5]


def test_names_of_one_character_are_never_control_tokens() -> None:
    assert tokens("a\u2581b") == []


def test_a_harmless_content_is_unchanged() -> None:
    assert SHIELD.guard("Hello, world", MARK) == "Hello, world"


@given(TEXTS)
def test_a_guarded_content_holds_no_control_token(content: str) -> None:
    assert tokens(SHIELD.guard(content, MARK)) == []


@given(TEXTS)
def test_taking_the_marks_out_gives_the_content_back(content: str) -> None:
    assert SHIELD.guard(content, MARK).replace(MARK, "") == content


@given(TEXTS)
def test_trimming_a_guarded_content_trims_the_content(content: str) -> None:
    assert SHIELD.guard(content, MARK).strip().replace(MARK, "") == content.strip()


@given(TEXTS.filter(lambda text: text != ""), st.sampled_from([str.strip, str]))
def test_the_templates_own_text_cannot_complete_a_name_with_a_content(content: str, trim: type[str]) -> None:
    guarded = trim(SHIELD.guard(content, MARK))
    for name in NAMES:
        for cut in range(1, len(name)):
            assert NAMES[name] not in tokens(name[:cut] + guarded) if name[:cut] + trim(content) != name[:cut] else True
            assert NAMES[name] not in tokens(guarded + name[cut:]) if trim(content) + name[cut:] != name[cut:] else True


@pytest.mark.parametrize("used", ["", MARK, MARK + "\U000f0001"])
def test_the_mark_occurs_nowhere(used: str) -> None:
    assert SHIELD.mark(["a", used]) not in used + "a" or used == ""
