"""Incremental decoding: whole characters only, and the same text as decoding everything at once."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.text.decode import Decoder
from zerolayer.text.encode import Encoder
from zerolayer.text.vocabulary import TokenKind, Vocabulary

BYTES = Vocabulary("plain", "", [bytes([byte]) for byte in range(256)], [TokenKind.NORMAL] * 256)


def decoded(vocabulary: Vocabulary, ids: list[int]) -> str:
    decoder = Decoder(vocabulary)
    return "".join([*map(decoder.push, ids), decoder.flush()])


def test_a_token_of_whole_characters_is_shown_at_once(vocabulary: Vocabulary) -> None:
    assert Decoder(vocabulary).push(vocabulary.pieces.index(b" the")) == " the"


def test_a_character_in_four_tokens_is_shown_with_the_last() -> None:
    decoder = Decoder(BYTES)
    assert [decoder.push(byte) for byte in "\U0001f600".encode()] == ["", "", "", "\U0001f600"]


def test_an_incomplete_character_becomes_a_replacement_at_the_end() -> None:
    assert decoded(BYTES, [*b"a", 0xE2, 0x82]) == "a\ufffd"


def test_a_broken_character_becomes_a_replacement_before_what_follows() -> None:
    decoder = Decoder(BYTES)
    assert [decoder.push(byte) for byte in b"\xe2\x82a"] == ["", "", "\ufffda"]


def test_flush_without_a_pending_character_is_empty() -> None:
    assert Decoder(BYTES).flush() == ""


@given(st.binary(max_size=40))
def test_bytes_one_by_one_decode_as_the_whole(content: bytes) -> None:
    assert decoded(BYTES, list(content)) == content.decode("utf-8", "replace")


@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=12))
def test_pieces_of_any_bytes_decode_as_the_whole(pieces: list[bytes]) -> None:
    vocabulary = Vocabulary("plain", "", pieces, [TokenKind.NORMAL] * len(pieces))
    whole = b"".join(vocabulary.pieces)  # a byte-level vocabulary reads some of these as one byte
    assert decoded(vocabulary, list(range(len(pieces)))) == whole.decode("utf-8", "replace")


@given(st.lists(st.integers(17, 49151), max_size=30))
def test_any_token_ids_decode_as_their_bytes(vocabulary: Vocabulary, ids: list[int]) -> None:
    whole = b"".join(vocabulary.piece_bytes(token_id) for token_id in ids)
    assert decoded(vocabulary, ids) == whole.decode("utf-8", "replace")


@given(st.lists(st.integers(17, 49151), max_size=12))
def test_any_token_ids_decode_as_tokenizers_decodes_them(
    vocabulary: Vocabulary, smollm_judge: tokenizers.Tokenizer, ids: list[int]
) -> None:
    smollm_judge.decoder = tokenizers.decoders.ByteLevel()
    assert decoded(vocabulary, ids) == smollm_judge.decode(ids, skip_special_tokens=False)


@given(st.text(st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs", "Cc"]), max_size=40))
def test_encoded_text_decodes_to_itself(vocabulary: Vocabulary, encoder: Encoder, text: str) -> None:
    assert decoded(vocabulary, encoder.encode(text)) == text


def test_control_tokens_are_never_shown(vocabulary: Vocabulary) -> None:
    assert decoded(vocabulary, list(vocabulary.special_ids.values())) == ""


def test_a_control_token_inside_a_character_does_not_break_it() -> None:
    raw = [b"\xc3", b"<end>", b"\xa9"]
    vocabulary = Vocabulary("plain", "", raw, [TokenKind.NORMAL, TokenKind.CONTROL, TokenKind.NORMAL])
    assert decoded(vocabulary, [0, 1, 2]) == "é"


@pytest.mark.parametrize("token_id", [-1, 256, 1 << 40])
def test_an_id_outside_the_vocabulary_shows_nothing(token_id: int) -> None:
    assert decoded(BYTES, [token_id]) == ""
