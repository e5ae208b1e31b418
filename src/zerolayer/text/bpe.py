"""Byte-pair encoding by the book, and the proof that a faster encoder may take its place.

Reference: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016): of all adjacent pairs
of symbols the one merged earliest in training is merged first, leftmost first, until none is left.

``tiktoken`` merges by strings instead: any two neighbours whose concatenation is a token, lowest token first. Both give
the same result for every input if every token, encoded alone by pairs, gives itself. For suppose they part at
neighbours (x, y) with xy a token t, but (x, y) not the pair listed for t. No merge ever crossed the ends of this xy, so
its inside went through the very steps of encoding t alone, which had to end in t through the listed pair.
"""

from __future__ import annotations

from itertools import pairwise

from zerolayer.errors import ModelFileError
from zerolayer.text._native import Merges


def parse_merges(lines: list[bytes], raw: list[bytes]) -> Merges:
    """From "left right" lines and the tokens as the file writes them; ``ModelFileError`` if one is no token."""
    try:
        return Merges(lines, raw)
    except ValueError:
        raise ModelFileError(
            "A merge of the model's vocabulary names no token. Download the file again, or use another conversion."
        ) from None


class ReferenceBpe:
    """Encodes one pre-token. Quadratic, for proofs and tests."""

    def __init__(self, merges: Merges, byte_ids: dict[int, int]) -> None:
        self._merges, self._merged = merges, merges.merged
        self._byte_ids = byte_ids

    def encode(self, piece: bytes) -> list[int]:
        """Token ids of ``piece``; bytes that are no token vanish."""
        symbols = [self._byte_ids[byte] for byte in piece if byte in self._byte_ids]
        rank, merged = self._merges.rank, self._merged
        while len(symbols) > 1:
            ranks = [found for left, right in pairwise(symbols) if (found := rank(left, right)) >= 0]
            if not ranks:
                break
            best = min(ranks)
            at = next(at for at, (left, right) in enumerate(pairwise(symbols)) if rank(left, right) == best)
            symbols[at : at + 2] = [merged[best]]
        return symbols


def why_not_by_strings(merges: Merges, pieces: list[bytes]) -> str:
    """Empty if merging by strings is proven to equal merging by pairs, else the reason why it is not."""
    why = merges.why_not_by_strings(pieces)
    return _why_incomplete(merges, pieces) if why is None else why


def _why_incomplete(merges: Merges, pieces: list[bytes]) -> str:
    """For vocabularies that list several pairs for a token: every split into two tokens must be listed, in order.

    Then any two neighbours that make a token are a listed pair, and pairs of one token are neighbours in rank. Such
    vocabularies were made for merging by strings and converted to pairs; strings are their original.
    """
    merged = merges.merged
    if any(first > second for first, second in pairwise(merged)):
        return "the merges of a token are not listed together"
    made = set(merged)
    id_of = {pieces[token]: token for token in {*made, *merges.left, *merges.right}}
    get = id_of.get
    for token in made:
        piece = pieces[token]
        for cut in range(1, len(piece)):
            left, right = get(piece[:cut]), get(piece[cut:])
            if left is not None and right is not None and merges.rank(left, right) < 0:
                return "a token has a split that is not among its merges"
    return ""
