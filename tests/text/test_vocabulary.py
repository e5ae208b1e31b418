"""What a vocabulary is read as, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import ModelFileError
from zerolayer.text.vocabulary import BYTE_ALPHABET, TokenKind, Vocabulary


def sentencepiece(**changes: object) -> Vocabulary:
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581the", "\u00e9", "<0xE2>"],
        "tokenizer.ggml.token_type": [2, 3, 3, 6, 1, 1, 6],
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, 0.0],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    given = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return Vocabulary.from_gguf({key: value for key, value in {**metadata, **given}.items() if value is not None})


def test_the_byte_alphabet_is_gpt2s() -> None:
    assert (BYTE_ALPHABET[ord(" ")], BYTE_ALPHABET[ord("\n")], BYTE_ALPHABET[ord("a")]) == ("\u0120", "\u010a", "a")
    assert len(set(BYTE_ALPHABET)) == 256


def test_the_bundled_pieces_are_bytes(vocabulary: Vocabulary) -> None:
    assert vocabulary.size == 49152
    assert {b" the", b"\n", b"ing"} <= set(vocabulary.pieces)
    assert sum(text is None for text in vocabulary.texts) == 313


def test_every_bundled_token_that_ends_a_reply_is_known(vocabulary: Vocabulary) -> None:
    assert vocabulary.eos_ids == {vocabulary.special_ids["<|im_end|>"], vocabulary.special_ids["<|endoftext|>"]}
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.add_bos) == (1, 2, False)


def test_a_control_token_stands_for_its_name(vocabulary: Vocabulary) -> None:
    assert vocabulary.piece_bytes(2) == b"<|im_end|>"
    assert vocabulary.token_text(2) == "<|im_end|>"


@pytest.mark.parametrize("token_id", [-1, 49152])
def test_an_id_outside_the_vocabulary_stands_for_nothing(vocabulary: Vocabulary, token_id: int) -> None:
    assert vocabulary.piece_bytes(token_id) == b""


def test_no_token_has_no_text(vocabulary: Vocabulary) -> None:
    assert vocabulary.token_text(None) == ""


def test_sentencepiece_pieces_have_spaces_and_bytes() -> None:
    found = sentencepiece()
    assert found.pieces == [b"<unk>", b"<s>", b"</s>", b"\n", b" the", "\u00e9".encode(), b"\xe2"]
    assert found.texts == ["", "", "", "\n", " the", "\u00e9", None]
    assert (found.add_bos, found.add_space_prefix, found.eos_ids) == (True, True, {2})


def test_flags_of_the_file_are_followed() -> None:
    found = sentencepiece(add_bos_token=False, add_space_prefix=False)
    assert (found.add_bos, found.add_space_prefix) == (False, False)


def test_a_further_end_token_of_the_file_ends_a_reply() -> None:
    assert sentencepiece(eot_token_id=4).eos_ids == {2, 4}


def test_added_text_tokens_are_listed_apart() -> None:
    assert sentencepiece(token_type=[2, 3, 3, 6, 4, 1, 6]).user_defined == {"\u2581the": 4}


REFUSED: dict[str, Mapping[str, object]] = {
    "no tokens": {"tokens": None},
    "tokens that are numbers": {"tokens": [1, 2]},
    "tokens that are one text": {"tokens": "abc"},
    "types for other tokens": {"token_type": [1]},
    "types that are text": {"token_type": "1234567"},
    "types that are no whole numbers": {"token_type": [float("nan")] * 7},
    "nothing but control tokens": {"token_type": [3] * 7},
    "scores that are text": {"scores": ["x"] * 7},
    "an end token outside": {"eos_token_id": 7},
    "an end token that is text": {"eos_token_id": "</s>"},
    "a begin token below": {"bos_token_id": -1},
    "a model that is a number": {"model": 1},
    "an endless token": {"tokens": ["x" * 5000, "a", "b", "c", "d", "e", "f"]},
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_inconsistent_vocabulary_is_one_clear_error(case: str) -> None:
    with pytest.raises(ModelFileError):
        sentencepiece(**REFUSED[case])


def test_the_longest_piece_is_one_that_text_can_become() -> None:
    assert sentencepiece().longest_piece_bytes == len(b" the")


LETTERS = st.text(st.sampled_from(BYTE_ALPHABET + "\u65e5\u0141\U0001f600"), max_size=6)


@given(st.lists(st.tuples(LETTERS, st.integers(-1, 7))))
def test_pieces_are_what_a_letter_by_letter_reading_gives(tokens: list[tuple[str, int]]) -> None:
    raw, kinds = [text.encode() for text, _ in tokens], [kind for _, kind in tokens]
    vocabulary = Vocabulary("gpt2", "default", raw, kinds)
    for at, (text, kind) in enumerate(tokens):
        known = kind == TokenKind.NORMAL and all(letter in BYTE_ALPHABET for letter in text)
        piece = bytes(map(BYTE_ALPHABET.index, text)) if known else text.encode()
        assert vocabulary.pieces[at] == piece
        try:
            shown: str | None = piece.decode()
        except UnicodeDecodeError:
            shown = None
        hidden = kind in (TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.UNUSED)
        assert vocabulary.texts[at] == ("" if hidden else shown)


@given(st.lists(st.binary(max_size=5), max_size=5), st.integers(2**31, 2**64))
def test_tokens_that_are_no_text_and_kinds_that_are_none_stand_for_themselves(raw: list[bytes], kind: int) -> None:
    vocabulary = Vocabulary("gpt2", "default", raw, [kind] * len(raw))
    assert vocabulary.pieces == raw
    assert len(vocabulary.texts) == len(raw)
    assert len(Vocabulary("gpt2", "default", raw, [TokenKind.NORMAL] * len(raw)).pieces) == len(raw)
