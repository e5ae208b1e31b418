"""A vocabulary as one file, for clients that tokenise themselves: ``GET /v1/models/{id}/vocabulary``.

All numbers are little-endian; lists follow one another without padding:

    8 bytes   b"ZLVOCAB1": name and version of the format
    u32       N: tokens
    u32       M: merges (byte-level vocabularies)
    u32       S: scores (SentencePiece vocabularies), 0 or N
    u32       E: tokens that end a reply
    i32       id of the beginning-of-sequence token, or -1
    i32       id of the end-of-sequence token that the model names, or -1
    u8        1: a bare prompt begins with the beginning-of-sequence token
    u8        1: a bare prompt begins with a space
    u16 u16   lengths of the two names that follow
    ...       tokenizer.ggml.model, tokenizer.ggml.pre (UTF-8): the algorithm and how text is cut before it
    E * u32   ids
    N * i32   kinds: 1 ordinary, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
    N * u32   lengths of the tokens
    ...       the tokens as the model file writes them
    M * u32   lengths of the merges
    ...       the merges as the model file writes them, the first one first
    S * f32   scores

Kinds and spellings: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Tokenizer".
"""

from __future__ import annotations

import struct
import sys
from array import array

from zerolayer.errors import ModelFileError
from zerolayer.text.vocabulary import Vocabulary

_HEADER = struct.Struct("<8sIIIIiiBBHH")
_MAGIC = b"ZLVOCAB1"
_DAMAGED = "The vocabulary file is damaged or of another version. Fetch it again."


def pack(vocabulary: Vocabulary) -> bytes:
    """The file. The same vocabulary gives the same bytes."""
    model, pre = vocabulary.model.encode(), vocabulary.pre.encode()
    header = _HEADER.pack(
        _MAGIC,
        vocabulary.size,
        len(vocabulary.merges),
        len(vocabulary.scores),
        len(vocabulary.eos_ids),
        _or_none(vocabulary.bos_id),
        _or_none(vocabulary.eos_id),
        vocabulary.add_bos,
        vocabulary.add_space_prefix,
        len(model),
        len(pre),
    )
    return b"".join(
        [
            header,
            model,
            pre,
            _little(array("I", sorted(vocabulary.eos_ids))),
            _little(array("i", vocabulary.kinds)),
            _little(array("I", map(len, vocabulary.raw))),
            *vocabulary.raw,
            _little(array("I", map(len, vocabulary.merges))),
            *vocabulary.merges,
            _little(array("f", vocabulary.scores)),
        ]
    )


def unpack(data: bytes) -> Vocabulary:
    """The vocabulary of a file; equal in everything that encoding and decoding use. Raises ModelFileError."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise ModelFileError(_DAMAGED)
    _, tokens, merges, scores, ends, bos, eos, add_bos, add_space, model_bytes, pre_bytes = _HEADER.unpack_from(data)
    reader = _Reader(data, _HEADER.size)
    try:
        model, pre = reader.take(model_bytes).decode(), reader.take(pre_bytes).decode()
    except UnicodeDecodeError:
        raise ModelFileError(_DAMAGED) from None
    eos_ids = reader.numbers("I", ends)
    kinds = reader.numbers("i", tokens)
    vocabulary = Vocabulary(model, pre, reader.strings(tokens), kinds.tolist())
    vocabulary.merges = reader.strings(merges)
    vocabulary.scores = reader.numbers("f", scores).tolist()
    if not reader.at_end or any(token_id >= tokens for token_id in (*eos_ids, bos, eos)):
        raise ModelFileError(_DAMAGED)
    vocabulary.eos_ids = frozenset(eos_ids)
    vocabulary.bos_id = None if bos < 0 else bos
    vocabulary.eos_id = None if eos < 0 else eos
    vocabulary.add_bos = bool(add_bos)
    vocabulary.add_space_prefix = bool(add_space)
    return vocabulary


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ModelFileError(_DAMAGED)
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def numbers(self, kind: str, count: int) -> array[int]:
        values = array(kind, self.take(4 * count))
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def strings(self, count: int) -> list[bytes]:
        return [self.take(size) for size in self.numbers("I", count)]


def _or_none(token_id: int | None) -> int:
    return -1 if token_id is None else token_id


def _little(values: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
