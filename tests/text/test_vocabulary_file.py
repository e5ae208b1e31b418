"""A vocabulary as a file: nothing that tokenising needs is lost, and a damaged file is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import ModelFileError
from zerolayer.text import vocabulary_file
from zerolayer.text.vocabulary import BYTE_ALPHABET, TokenKind, Vocabulary


def vocabulary() -> Vocabulary:
    raw = [BYTE_ALPHABET[byte].encode() for byte in range(256)] + [b"ab", b"<|end|>"]
    made = Vocabulary("gpt2", "smollm", raw, [TokenKind.NORMAL] * 257 + [TokenKind.CONTROL])
    made.merges = [b"a b"]
    made.scores = [0.5] * 258
    made.bos_id, made.eos_id, made.eos_ids = None, 257, frozenset({257})
    made.add_space_prefix = True
    return made


FILE = vocabulary_file.pack(vocabulary())


@pytest.mark.parametrize(
    "name",
    ["model", "pre", "raw", "kinds", "pieces", "texts", "merges", "scores", "bos_id", "eos_id", "eos_ids", "add_bos",
     "add_space_prefix", "special_ids"],
)  # fmt: skip
def test_nothing_is_lost(name: str) -> None:
    assert getattr(vocabulary_file.unpack(FILE), name) == getattr(vocabulary(), name)


def test_the_same_vocabulary_gives_the_same_bytes() -> None:
    assert vocabulary_file.pack(vocabulary_file.unpack(FILE)) == FILE


@given(st.integers(0, len(FILE) - 1))
def test_a_file_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(ModelFileError):
        vocabulary_file.unpack(FILE[:size])


def test_a_file_that_goes_on_is_refused() -> None:
    with pytest.raises(ModelFileError):
        vocabulary_file.unpack(FILE + b"x")


@given(st.integers(0, len(FILE) - 1), st.integers(0, 255))
def test_a_damaged_file_is_read_or_refused(at: int, byte: int) -> None:
    damaged = FILE[:at] + bytes([byte]) + FILE[at + 1 :]
    try:
        outcome: object = vocabulary_file.unpack(damaged)
    except ModelFileError as error:
        outcome = error
    assert isinstance(outcome, Vocabulary | ModelFileError)
