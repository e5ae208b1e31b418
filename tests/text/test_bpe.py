"""Merging by strings equals merging by pairs exactly when the proof says so."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zerolayer.errors import ModelFileError
from zerolayer.text._native import Merges
from zerolayer.text.bpe import ReferenceBpe, parse_merges, why_not_by_strings
from zerolayer.text.vocabulary import Vocabulary

LETTERS = [b"a", b"b", b"c"]


def build(merges: list[bytes]) -> tuple[Merges, list[bytes]]:
    raw = [*LETTERS, *dict.fromkeys(merge.replace(b" ", b"") for merge in merges)]
    return parse_merges(merges, raw), raw


def by_strings(piece: bytes, rank_of: dict[bytes, int]) -> list[bytes]:
    """What tiktoken does: of all neighbours whose concatenation is a token, the lowest token first."""
    parts = [bytes([byte]) for byte in piece]
    while len(parts) > 1:
        ranks = [rank_of.get(parts[at] + parts[at + 1], 1 << 30) for at in range(len(parts) - 1)]
        at = ranks.index(min(ranks))
        if ranks[at] == 1 << 30:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def differs_somewhere(merges: Merges, raw: list[bytes], length: int = 7) -> bool:
    """Whether any text of up to ``length`` letters is encoded differently by strings and by pairs."""
    reference = ReferenceBpe(merges, {letter[0]: at for at, letter in enumerate(LETTERS)})
    rank_of: dict[bytes, int] = {}
    for rank, token in enumerate(merges.merged):
        rank_of.setdefault(raw[token], rank)
    texts = (bytes(letters) for n in range(1, length + 1) for letters in product(b"abc", repeat=n))
    return any(by_strings(text, rank_of) != [raw[t] for t in reference.encode(text)] for text in texts)


def test_the_earliest_merge_comes_first() -> None:
    merges, raw = build([b"b c", b"a b"])
    assert [raw[t] for t in ReferenceBpe(merges, {97: 0, 98: 1, 99: 2}).encode(b"abcab")] == [b"a", b"bc", b"ab"]


def test_equal_merges_go_from_left_to_right() -> None:
    merges, raw = build([b"a a"])
    assert [raw[t] for t in ReferenceBpe(merges, {97: 0}).encode(b"aaa")] == [b"aa", b"a"]


def test_bytes_without_a_token_vanish_before_merging() -> None:
    merges, raw = build([b"a b"])
    assert [raw[t] for t in ReferenceBpe(merges, {97: 0, 98: 1}).encode(b"a?b")] == [b"ab"]


def test_the_bundled_vocabulary_is_proven(vocabulary: Vocabulary) -> None:
    assert why_not_by_strings(parse_merges(vocabulary.merges, vocabulary.raw), vocabulary.pieces) == ""


def test_every_bundled_token_encodes_to_itself(vocabulary: Vocabulary) -> None:
    merges = parse_merges(vocabulary.merges, vocabulary.raw)
    byte_ids = {vocabulary.pieces[t][0]: t for t in range(17, 252)}
    reference = ReferenceBpe(merges, byte_ids)
    assert all(reference.encode(vocabulary.pieces[token]) == [token] for token in merges.merged)


def test_a_token_that_its_merges_cannot_reach_is_no_proof() -> None:
    merges, raw = build([b"b c", b"a b", b"ab c"])
    assert why_not_by_strings(merges, raw) == "a token cannot be reached by its own merges"
    assert differs_somewhere(merges, raw)


def test_tied_merges_are_judged_from_left_to_right() -> None:
    good, good_raw = build([b"a a", b"aa a"])
    bad, bad_raw = build([b"a a", b"a aa"])
    assert why_not_by_strings(good, good_raw) == ""
    assert why_not_by_strings(bad, bad_raw) != ""


def test_several_pairs_for_a_token_must_be_all_pairs() -> None:
    partial, partial_raw = build([b"a b", b"b c", b"c c", b"ab c", b"c c", b"a bc"])
    assert why_not_by_strings(partial, partial_raw) != ""
    complete, complete_raw = build([b"a b", b"b c", b"ab c", b"a bc"])
    assert why_not_by_strings(complete, complete_raw) == ""
    assert not differs_somewhere(complete, complete_raw)


def test_a_merge_of_no_token_is_a_clear_error() -> None:
    with pytest.raises(ModelFileError, match="names no token"):
        parse_merges([b"a z"], [b"a", b"az"])


def test_a_merge_without_a_space_is_a_clear_error() -> None:
    with pytest.raises(ModelFileError, match="names no token"):
        parse_merges([b"az"], [b"a", b"z", b"az"])


def test_a_merge_made_of_added_tokens_is_no_proof() -> None:
    raw = [b"a", b"xy", b"axy"]
    assert why_not_by_strings(parse_merges([b"a xy"], raw), raw) == "a merge starts from something other than bytes"


def test_a_piece_for_every_token_or_none() -> None:
    merges, raw = build([b"a b"])
    for pieces in (raw[:-1], [*raw, b"x"], []):
        with pytest.raises(ValueError, match="a piece for each token"):
            merges.why_not_by_strings(pieces)
    with pytest.raises(TypeError):
        Merges([b"a b"], ["a", "b", "ab"])


@st.composite
def merge_lists(draw: st.DrawFn) -> list[bytes]:
    """Merges in the order of training: each joins tokens that exist, each makes a new one."""
    tokens, merges = list(LETTERS), []
    for _ in range(draw(st.integers(1, 6))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if left + right not in tokens and len(left + right) <= 5:
            tokens.append(left + right)
            merges.append(left + b" " + right)
    return merges


@given(merge_lists())
def test_a_proven_vocabulary_encodes_every_text_alike(lines: list[bytes]) -> None:
    merges, raw = build(lines)
    assume(why_not_by_strings(merges, raw) == "")
    assert not differs_somewhere(merges, raw)


@given(merge_lists())
def test_the_proof_fails_only_where_a_token_does_not_encode_to_itself(lines: list[bytes]) -> None:
    merges, raw = build(lines)
    reference = ReferenceBpe(merges, {letter[0]: at for at, letter in enumerate(LETTERS)})
    reachable = all(reference.encode(raw[token]) == [token] for token in merges.merged)
    assert reachable == (why_not_by_strings(merges, raw) == "")
