"""Byte-pair encoding by the book, and the proof that a faster encoder may take its place.

Reference: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016): of all adjacent pairs
of symbols the one merged earliest in training is merged first, leftmost first, until none is left.

``tiktoken`` merges by strings instead: any two neighbours whose concatenation is a token, lowest token first. Both give
the same result for every input if every token, encoded alone by pairs, gives itself. For suppose they part at
neighbours (x, y) with xy a token t, but (x, y) not the pair listed for t. No merge ever crossed the ends of this xy, so
its inside went through the very steps of encoding t alone, which had to end in t through the listed pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from zerolayer.errors import ModelFileError

_SHIFT = 32  # a pair of ids as one integer: left << 32 | right


class Merges(msgspec.Struct, frozen=True):
    """The merges in order: token ``left[rank]`` and ``right[rank]`` become token ``merged[rank]``.

    ``rank_of``: the same by pair, ``left << 32 | right`` to rank.
    """

    left: list[int]
    right: list[int]
    merged: list[int]
    rank_of: dict[int, int]

    @classmethod
    def parse(cls, merges: Sequence[bytes], raw: Sequence[bytes]) -> Merges:
        """From "left right" lines and the tokens as the file writes them; ``ModelFileError`` if one is no token."""
        id_of = dict(zip(raw, range(len(raw)), strict=True))
        left, right, merged = [], [], []
        try:
            for merge in merges:
                cut = merge.index(b" ")
                first, second = merge[:cut], merge[cut + 1 :]
                left.append(id_of[first])
                right.append(id_of[second])
                merged.append(id_of[first + second])
        except (KeyError, ValueError):
            raise ModelFileError(
                "A merge of the model's vocabulary names no token. Download the file again, or use another conversion."
            ) from None
        pairs = [first << _SHIFT | second for first, second in zip(left, right, strict=True)]
        return cls(left, right, merged, dict(zip(reversed(pairs), range(len(pairs) - 1, -1, -1), strict=True)))


class ReferenceBpe:
    """Encodes one pre-token. Quadratic, for proofs and tests."""

    def __init__(self, merges: Merges, byte_ids: dict[int, int]) -> None:
        self._merges = merges
        self._byte_ids = byte_ids

    def encode(self, piece: bytes) -> list[int]:
        """Token ids of ``piece``; bytes that are no token vanish."""
        symbols = [self._byte_ids[byte] for byte in piece if byte in self._byte_ids]
        rank_of, never = self._merges.rank_of, len(self._merges.merged)
        while len(symbols) > 1:
            ranks = [rank_of.get(left << _SHIFT | right, never) for left, right in pairwise(symbols)]
            best = min(ranks)
            if best == never:
                break
            at = ranks.index(best)
            symbols[at : at + 2] = [self._merges.merged[best]]
        return symbols


def why_not_by_strings(merges: Merges, pieces: Sequence[bytes]) -> str:
    """Empty if merging by strings is proven to equal merging by pairs, else the reason why it is not."""
    triples = zip(merges.left, merges.right, merges.merged, strict=True)
    if any(pieces[left] + pieces[right] != pieces[merged] for left, right, merged in triples):
        return "a token is not its two halves"
    parts = {*merges.left, *merges.right}.difference(merges.merged)
    if any(len(pieces[part]) != 1 for part in parts):
        return "a merge starts from something other than bytes"
    if len(set(merges.merged)) < len(merges.merged):
        return _why_incomplete(merges, pieces)
    return _why_unreachable(merges, pieces)


def _why_unreachable(merges: Merges, pieces: Sequence[bytes]) -> str:
    """Checks that each token, encoded alone, ends in its listed pair (a, b): no merge crosses the border before.

    Time runs backwards: a and b are taken apart, latest merge first. The two symbols at the border lived until the
    merge being undone; had their own pair come earlier, it would have been merged. Of equal pairs the left one comes
    first, hence the two comparisons.
    """
    made_at = [-1] * len(pieces)  # rank of the merge that makes a token; -1: it is there from the start
    for rank, token in enumerate(merges.merged):
        made_at[token] = rank
    lefts, rights, get = merges.left, merges.right, merges.rank_of.get
    for rank, (u, v) in enumerate(zip(lefts, rights, strict=True)):
        made_u, made_v = made_at[u], made_at[v]
        if made_u >= rank or made_v >= rank:
            return "a token is made of tokens that are merged later"
        while made_u >= 0 or made_v >= 0:
            if made_u > made_v:
                u = rights[made_u]
                if get(u << _SHIFT | v, made_u) < made_u:
                    return "a token cannot be reached by its own merges"
                made_u = made_at[u]
            else:
                v = lefts[made_v]
                if get(u << _SHIFT | v, made_v + 1) <= made_v:
                    return "a token cannot be reached by its own merges"
                made_v = made_at[v]
    return ""


def _why_incomplete(merges: Merges, pieces: Sequence[bytes]) -> str:
    """For vocabularies that list several pairs for a token: every split into two tokens must be listed, in order.

    Then any two neighbours that make a token are a listed pair, and pairs of one token are neighbours in rank. Such
    vocabularies were made for merging by strings and converted to pairs; strings are their original.
    """
    if any(first > second for first, second in pairwise(merges.merged)):
        return "the merges of a token are not listed together"
    made = set(merges.merged)
    id_of = {pieces[token]: token for token in {*made, *merges.left, *merges.right}}
    get = id_of.get
    for token in made:
        piece = pieces[token]
        for cut in range(1, len(piece)):
            left, right = get(piece[:cut]), get(piece[cut:])
            if left is not None and right is not None and left << _SHIFT | right not in merges.rank_of:
                return "a token has a split that is not among its merges"
    return ""
