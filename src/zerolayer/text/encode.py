"""Text to token ids, with the model's own vocabulary.

``tiktoken`` does it five times as fast as ``tokenizers``, but merges by strings where the model was trained on merging
by pairs; it is taken only where ``bpe`` proves both equal for this vocabulary and a probe set agrees. Otherwise the
extra ``hf`` brings ``tokenizers``.

Text never becomes a control token: whoever writes ``<|im_end|>`` into a prompt gets the letters, not the token.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import regex  # type: ignore[import-untyped] # comes with tiktoken, without types
import tiktoken

from zerolayer.errors import StartupError
from zerolayer.text import hf_encode
from zerolayer.text._native import Merges
from zerolayer.text.bpe import ReferenceBpe, parse_merges, why_not_by_strings
from zerolayer.text.pretokenise import PreTokeniser, pre_tokeniser
from zerolayer.text.vocabulary import TokenKind, Vocabulary

# tiktoken's regular expressions give up (a Rust panic) on some 500,000 white-space characters in a row; texts longer
# than this are cut by the `regex` package, which has no such limit.
_LONG = 65_536
_MISSING = 1 << 24  # ids of bytes that are no token of the vocabulary begin here

# Letters, digits, white space, punctuation and marks of several scripts, and what a vocabulary may lack.
PROBES = (
    "",
    "Hello, world! It's 2024; they've said 'we'll see'.",
    "  two leading spaces, trailing ones  ",
    "\n\n\tdef f(x):\n\t\treturn x ** 2  # square\r\n\r\n",
    "12 345 6789 3.14159 1e-9 \u00b2\u00bd\u2167 \u0663\u0664",
    "na\u00efve caf\u00e9 e\u0301 \u0141\u00f3d\u017a \u0394\u03b5\u03bd \u041f\u0440\u0438\u0432\u0435\u0442",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3001\u4e2d\u6587 \ud55c\uad6d\uc5b4",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U000e0041",
    "\x00\x01\x04\x1d\x7f\x85\xa0\u2003\u2028\u3000\ufeff",
    "aaaaaaaaaaaaaaaa '''' ---- ==== .... \t\t\t\t        x",
    "<|im_start|>user\n<|endoftext|></s>[INST] <0x0A>",
    'https://example.org/a/b?c=d&e=%20f#g {"k": [1, null, true]}',
    "CamelCaseWords snake_case_words SHOUTING don't DON'T 'S 'Re",
)


class Encoder(Protocol):
    """Turns text into token ids; safe to use from several threads."""

    name: str

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``, without a beginning-of-sequence token; names of control tokens are ordinary text.

        Lone surrogates count as U+FFFD. Never fails, whatever the text.
        """


class TiktokenEncoder:
    """A byte-level vocabulary on ``tiktoken``; see ``why_not_tiktoken`` for when that is exact.

    Which characters are letters and digits depends on the Unicode version of the library that cuts the text; libraries
    differ on characters that are younger than the model.
    """

    def __init__(self, vocabulary: Vocabulary, merges: Merges, byte_ids: dict[int, int], pre: PreTokeniser) -> None:
        self.name = "tiktoken"
        self._nfc = pre.nfc
        self._split: Callable[[str], list[str]] = regex.compile(pre.pattern).findall
        self._missing = bytes(byte for byte in range(256) if byte not in byte_ids)
        merged = merges.merged
        in_order = all(a < b for a, b in pairwise(merged))
        # tiktoken takes the id as rank. Where the ids do not rise with the merges, ranks are given and translated back.
        first_made = dict.fromkeys(merged)
        self._id_of_rank = None if in_order else [*byte_ids.values(), *first_made]
        ranks = {bytes([byte]): _MISSING + byte for byte in self._missing}
        if self._id_of_rank is None:
            ranks |= {bytes([byte]): token for byte, token in byte_ids.items()}
            ranks |= {vocabulary.pieces[token]: token for token in first_made}
        else:
            ranks |= {vocabulary.pieces[token]: rank for rank, token in enumerate(self._id_of_rank)}
        self._tiktoken = tiktoken.Encoding("zerolayer", pat_str=pre.pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(self, text: str) -> list[int]:
        """See ``Encoder``."""
        if self._nfc:
            text = unicodedata.normalize("NFC", text)
        if len(text) > _LONG:
            return self._encode_pieces(text)
        ids = self._tiktoken.encode_ordinary(text)
        if self._missing and ids and max(ids) >= _MISSING:
            return self._encode_pieces(text)
        return ids if self._id_of_rank is None else [self._id_of_rank[rank] for rank in ids]

    def _encode_pieces(self, text: str) -> list[int]:
        """As ``encode``, piece by piece. Bytes that are no token vanish before merging, as in ``tokenizers``."""
        ids: list[int] = []
        text = _without_surrogates(text)
        encode_piece = self._tiktoken._core_bpe.encode_single_piece  # noqa: SLF001 - the public one refuses bytes
        for piece in self._split(text):
            kept = piece.encode().translate(None, self._missing)
            if kept:
                ids += encode_piece(kept)
        return ids if self._id_of_rank is None else [self._id_of_rank[rank] for rank in ids]


class AddedTokenEncoder:
    """Cuts out added tokens that are ordinary text (``user_defined``), longest first, and encodes what is between."""

    def __init__(self, inner: Encoder, added: dict[str, int]) -> None:
        self.name = inner.name
        self._inner = inner
        self._added = added
        names = sorted(added, key=len, reverse=True)
        self._split: Callable[[str], list[str]] = re.compile(f"({'|'.join(map(re.escape, names))})").split

    def encode(self, text: str) -> list[int]:
        """See ``Encoder``."""
        ids: list[int] = []
        for part in self._split(text):
            if part in self._added:
                ids.append(self._added[part])
            elif part:
                ids += self._inner.encode(part)
        return ids


def byte_tokens(vocabulary: Vocabulary) -> dict[int, int]:
    """Token id of each byte that is a token of its own."""
    return {
        piece[0]: token_id
        for token_id, (piece, kind) in enumerate(zip(vocabulary.pieces, vocabulary.kinds, strict=True))
        if len(piece) == 1 and kind == TokenKind.NORMAL
    }


def why_not_tiktoken(
    encoder: Encoder, pieces: list[bytes], merges: Merges, byte_ids: dict[int, int], pre: PreTokeniser
) -> str:
    """Empty if ``encoder`` is exact: merging by strings is proven equal, and the probe set gives the same ids."""
    why = why_not_by_strings(merges, pieces)
    if why:
        return why
    reference = ReferenceBpe(merges, byte_ids)
    split = regex.compile(pre.pattern).findall
    for probe in PROBES:
        text = unicodedata.normalize("NFC", probe) if pre.nfc else probe
        expected = [token for piece in split(text) for token in reference.encode(piece.encode())]
        if encoder.encode(probe) != expected:
            return "a probe text gives other tokens"
    return ""


def build_encoder(vocabulary: Vocabulary, by_pairs: Callable[[], Encoder] | None = None) -> Encoder:
    """The fastest encoder that is exact for ``vocabulary``.

    ``by_pairs`` makes the encoder where tiktoken is not exact; the default builds one from the vocabulary.
    Raises ``StartupError`` if that is ``tokenizers`` and the extra ``hf`` is not installed, or if the vocabulary is of
    a kind that is not supported, and ``ModelFileError`` if it contradicts itself.
    """
    encoder = _byte_level(vocabulary, by_pairs) if vocabulary.model == "gpt2" else _sentencepiece(vocabulary)
    added = {name: token for name, token in vocabulary.user_defined.items() if name}
    return AddedTokenEncoder(encoder, added) if added else encoder


def _byte_level(vocabulary: Vocabulary, by_pairs: Callable[[], Encoder] | None) -> Encoder:
    pre = pre_tokeniser(vocabulary.pre)
    merges = parse_merges(vocabulary.merges, vocabulary.raw)
    byte_ids = byte_tokens(vocabulary)
    if not byte_ids:
        raise StartupError(
            "The model's byte-level vocabulary has no single bytes. Use another conversion of the model."
        )
    encoder = TiktokenEncoder(vocabulary, merges, byte_ids, pre)
    if not why_not_tiktoken(encoder, vocabulary.pieces, merges, byte_ids, pre):
        return encoder
    return by_pairs() if by_pairs else hf_encode.byte_level(vocabulary, pre)


def _sentencepiece(vocabulary: Vocabulary) -> Encoder:
    if vocabulary.model != "llama":
        raise StartupError(
            "The model's tokeniser (tokenizer.ggml.model) is not supported; this build knows gpt2 (byte-level BPE) and "
            "llama (SentencePiece BPE). Use a model with one of these."
        )
    return hf_encode.sentencepiece(vocabulary)


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
