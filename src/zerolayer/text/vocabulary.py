"""What a model's tokens are: the bytes that each stands for, and which of them steer instead of speak.

Fields: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Tokenizer". Byte-level vocabularies ("gpt2") write
every byte as one printable character, as GPT-2 did (https://github.com/openai/gpt-2, ``bytes_to_unicode``);
SentencePiece vocabularies ("llama") write a space as U+2581 and a lone byte as ``<0x0A>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Self

from zerolayer.errors import ModelFileError
from zerolayer.text._native import byte_level, texts

_REMEDY = "Use a GGUF file with a complete vocabulary."
_MAX_PIECE_BYTES = 4096
_SPACE = "\u2581".encode()
_BYTE_TOKEN = re.compile(rb"<0x([0-9A-Fa-f]{2})>")

# Control tokens that end a reply although the file names only one end-of-sequence token.
_END_NAMES = frozenset(
    {"</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>"}
)


class TokenKind(IntEnum):
    """``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SILENT = (int(TokenKind.UNKNOWN), int(TokenKind.CONTROL), int(TokenKind.UNUSED))


def _byte_alphabet() -> str:
    """The character that stands for each of the 256 bytes in a byte-level vocabulary."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()


class Vocabulary:
    """Tokens by id.

    ``raw``: a token as the file writes it. ``pieces``: the bytes it stands for (of a control token: its name).
    ``texts``: the same as text, the empty text for tokens that are never shown, and ``None`` where the bytes are only a
    part of a character. ``special_ids``: control tokens by name; ``user_defined``: added tokens that are ordinary text
    but never split. ``eos_ids``: every token that ends a reply, ``eos_id`` the one that the file names. ``add_bos``:
    whether a bare prompt (no chat template) begins with ``bos_id``. ``merges`` and ``scores``: how byte-level and
    SentencePiece vocabularies build tokens, as in the file.
    """

    def __init__(self, model: str, pre: str, raw: list[bytes], kinds: Sequence[int]) -> None:
        self.model = model
        self.pre = pre
        self.raw = raw
        self.kinds = kinds
        self.size = len(raw)
        kinds = list(map(int, kinds))
        self.pieces = (
            _sentencepiece(raw, kinds)
            if model == "llama"
            else byte_level(raw, kinds, BYTE_ALPHABET, int(TokenKind.NORMAL))
        )
        self.texts = texts(self.pieces, kinds, _SILENT)
        self.special_ids: Mapping[str, int] = _named(raw, kinds, TokenKind.CONTROL)
        self.user_defined: Mapping[str, int] = _named(raw, kinds, TokenKind.USER_DEFINED)
        self.bos_id: int | None = None
        self.eos_id: int | None = None
        self.eos_ids: frozenset[int] = frozenset()
        self.add_bos = False
        self.add_space_prefix = False
        self.merges: list[bytes] = []
        self.scores: Sequence[float] = ()

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> Self:
        """The vocabulary of a GGUF file's metadata; ``ModelFileError`` if it is missing or inconsistent."""
        model = _text(metadata, "tokenizer.ggml.model", "")
        raw = _strings(metadata, "tokenizer.ggml.tokens")
        if not raw:
            raise ModelFileError(f"The model file has no tokenizer.ggml.tokens. {_REMEDY}")
        if max(map(len, raw)) > _MAX_PIECE_BYTES:
            raise ModelFileError(f"A token of the model file is longer than {_MAX_PIECE_BYTES} bytes. {_REMEDY}")
        vocabulary = cls(model, _text(metadata, "tokenizer.ggml.pre", "default"), raw, _kinds(metadata, len(raw)))
        if all(text == "" for text in vocabulary.texts):
            raise ModelFileError(f"No token of the model file stands for any text. {_REMEDY}")
        vocabulary.merges = _strings(metadata, "tokenizer.ggml.merges")
        vocabulary.scores = _numbers(metadata, "tokenizer.ggml.scores", len(raw))
        vocabulary.bos_id = _token_id(metadata, "bos", len(raw))
        vocabulary.eos_id = _token_id(metadata, "eos", len(raw))
        ends = (vocabulary.eos_id, *(_token_id(metadata, name, len(raw)) for name in ("eot", "eom")))
        named = (token_id for name, token_id in vocabulary.special_ids.items() if name in _END_NAMES)
        vocabulary.eos_ids = frozenset(token_id for token_id in (*ends, *named) if token_id is not None)
        vocabulary.add_bos = _flag(metadata, "add_bos_token", model == "llama") and vocabulary.bos_id is not None
        vocabulary.add_space_prefix = _flag(metadata, "add_space_prefix", model == "llama")
        return vocabulary

    @property
    def longest_piece_bytes(self) -> int:
        """Bytes of the longest token that text can become; control tokens are never made of text."""
        return max(len(piece) for piece, text in zip(self.pieces, self.texts, strict=True) if text != "")

    def piece_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; a control token's name; nothing for an id outside the vocabulary."""
        return self.pieces[token_id] if 0 <= token_id < self.size else b""

    def token_text(self, token_id: int | None) -> str:
        """A token's name as a chat template writes it (``bos_token``); empty if there is none."""
        return "" if token_id is None else self.piece_bytes(token_id).decode("utf-8", "replace")


def _sentencepiece(raw: list[bytes], kinds: Sequence[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for token, kind in zip(raw, kinds, strict=True):
        byte = _BYTE_TOKEN.fullmatch(token) if kind == TokenKind.BYTE else None
        if byte:
            pieces.append(bytes([int(byte[1], 16)]))
        else:
            pieces.append(token if kind == TokenKind.CONTROL else token.replace(_SPACE, b" "))
    return pieces


def _named(raw: list[bytes], kinds: Sequence[int], kind: TokenKind) -> dict[str, int]:
    named: dict[str, int] = {}
    if int(kind) not in kinds:
        return named
    for token_id, (token, its_kind) in enumerate(zip(raw, kinds, strict=True)):
        if its_kind == kind and token:
            named.setdefault(token.decode("utf-8", "replace"), token_id)
    return named


def _strings(metadata: Mapping[str, object], key: str) -> list[bytes]:
    value = metadata.get(key)
    if value is None:
        return []
    raw = getattr(value, "raw", None)  # model.gguf.StringArray: the bytes as they are
    if isinstance(raw, list):
        return raw
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return [item.encode("utf-8", "surrogatepass") for item in items]
    raise ModelFileError(f"The model file's {key} is no list of strings. {_REMEDY}")


def _numbers(metadata: Mapping[str, object], key: str, count: int) -> Sequence[float]:
    value = metadata.get(key)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) != count:
        raise ModelFileError(
            f"The model file's {key} does not have one number for each of the {count} tokens. {_REMEDY}"
        )
    if count and not isinstance(value[0], (int, float)):
        raise ModelFileError(f"The model file's {key} is no list of numbers. {_REMEDY}")
    return value


def _kinds(metadata: Mapping[str, object], count: int) -> list[int]:
    kinds = _numbers(metadata, "tokenizer.ggml.token_type", count) or bytes([TokenKind.NORMAL]) * count
    if not all(issubclass(kind, int) for kind in set(map(type, kinds))):  # a NaN names none
        raise ModelFileError(f"The model file's tokenizer.ggml.token_type is no list of whole numbers. {_REMEDY}")
    return list(map(int, kinds))


def _token_id(metadata: Mapping[str, object], name: str, size: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}_token_id")
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < size:
        raise ModelFileError(f"The model file's {name}_token_id is not one of its {size} tokens. {_REMEDY}")
    return value


def _flag(metadata: Mapping[str, object], name: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{name}")
    return value if isinstance(value, bool) else default


def _text(metadata: Mapping[str, object], key: str, default: str) -> str:
    value = metadata.get(key, default)
    if not isinstance(value, str):
        raise ModelFileError(f"The model file's {key} is no text. {_REMEDY}")
    return value
