"""Hugging Face's ``tokenizer.json`` and its neighbours as a vocabulary and an encoder.

Format: https://github.com/huggingface/tokenizers; the file is the library's own serialisation. Byte-level vocabularies
that cut text in a way that ``pretokenise`` knows get the house's encoder; all others are handed to the library (extra
``hf``). On both ways control tokens are kept out of what text can become.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec

from zerolayer.errors import ModelFileError, StartupError
from zerolayer.text import hf_encode
from zerolayer.text.encode import Encoder, build_encoder
from zerolayer.text.pretokenise import PRE_TOKENISERS
from zerolayer.text.vocabulary import TokenKind, Vocabulary

_REMEDY = "Download the model again, or use a GGUF file of it."
_MAX_TOKENS = 1 << 22
_MOST_ENDS = 64  # as many as an engine looks for
_BYTE_TOKEN_LENGTH = len("<0x0A>")
_DIGITS = {"type": "Digits", "individual_digits": True}
_GPT2_SPLIT = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_BYTES_ONLY = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
_SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}


class TokenizerFiles(msgspec.Struct, frozen=True):
    """The parsed files of a folder; ``eos_ids``: the ends of a reply by config.json and generation_config.json."""

    tokenizer: Mapping[str, object]  # tokenizer.json
    config: Mapping[str, object]  # tokenizer_config.json
    bos_id: int | None
    eos_ids: tuple[int, ...]


class HfTokenizer:
    """``vocabulary``, and what encodes text with it."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._files = files
        self._model = _object(files.tokenizer, "model")
        if self._model.get("type", "BPE") != "BPE":
            raise StartupError(
                "The model's tokeniser (tokenizer.json, model.type) is not supported; this build knows BPE. "
                "Use a GGUF file of the model."
            )
        self._added = _added(files.tokenizer)
        self._pre = _pre_tokeniser(files.tokenizer, self._added)
        self.vocabulary = self._build_vocabulary()

    @classmethod
    def read(cls, files: TokenizerFiles) -> Self:
        """Raises ``ModelFileError`` for files that contradict themselves, ``StartupError`` for an unsupported kind."""
        return cls(files)

    def encoder(self) -> Encoder:
        """For text that begins a sequence. ``StartupError`` if that takes the extra ``hf``, and it is missing."""
        if self._pre is None or self._has_whole_tokens():
            return self._library(self._files.tokenizer)
        return build_encoder(self.vocabulary, lambda: self._library(self._files.tokenizer))

    def inner_encoder(self, encoder: Encoder) -> Encoder:
        """For text behind a control token: some SentencePiece models put a space before the first text only."""
        pre = self._files.tokenizer.get("pre_tokenizer")
        if not isinstance(pre, Mapping) or (pre.get("type"), pre.get("prepend_scheme")) != ("Metaspace", "first"):
            return encoder
        return self._library({**self._files.tokenizer, "pre_tokenizer": {**pre, "prepend_scheme": "never"}})

    def _library(self, tokenizer: Mapping[str, object]) -> Encoder:
        control = {token.content for token in self._added if token.special}
        return hf_encode.from_tokenizer_json(tokenizer, control)

    def _has_whole_tokens(self) -> bool:
        """Whether a stretch of text can become a token that no merge makes (``ignore_merges``)."""
        if self._model.get("ignore_merges") is not True:
            return False
        made = {merge.replace(b" ", b"") for merge in self.vocabulary.merges}
        ordinary = zip(self.vocabulary.raw, self.vocabulary.pieces, self.vocabulary.kinds, strict=True)
        return any(kind == TokenKind.NORMAL and len(piece) > 1 and raw not in made for raw, piece, kind in ordinary)

    def _build_vocabulary(self) -> Vocabulary:
        raw, kinds = self._tokens()
        bos, eos = (self._named(name, raw) for name in ("bos_token", "eos_token"))
        eos_ids = self._files.eos_ids if eos is None else (eos, *self._files.eos_ids)
        bos = self._files.bos_id if bos is None else bos
        metadata: dict[str, object] = {
            "tokenizer.ggml.model": "gpt2" if _is_byte_level(self._files.tokenizer) else "llama",
            "tokenizer.ggml.pre": self._pre or "default",
            "tokenizer.ggml.tokens": raw,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.merges": _merges(self._model),
            "tokenizer.ggml.add_bos_token": self._adds_bos(bos, raw),
        }
        if bos is not None:
            metadata["tokenizer.ggml.bos_token_id"] = bos
        if eos_ids:
            metadata["tokenizer.ggml.eos_token_id"] = eos_ids[0]
        vocabulary = Vocabulary.from_gguf(metadata)
        if not all(0 <= token_id < len(raw) for token_id in eos_ids):
            raise ModelFileError(f"The model's eos_token_id is not one of its {len(raw)} tokens. {_REMEDY}")
        vocabulary.eos_ids |= frozenset(eos_ids)
        if len(vocabulary.eos_ids) > _MOST_ENDS:
            raise ModelFileError(
                f"The model's eos_token_id names {len(vocabulary.eos_ids)} tokens; the limit is {_MOST_ENDS}. {_REMEDY}"
            )
        return vocabulary

    def _tokens(self) -> tuple[list[str], list[int]]:
        """Every token by id, and its kind; ids that no token has stand for nothing."""
        listed = _object(self._model, "vocab")
        ids = {**listed, **{token.content: token.id for token in self._added}}
        if not listed or not all(isinstance(i, int) and 0 <= i < _MAX_TOKENS for i in ids.values()):
            raise ModelFileError(f"tokenizer.json: the vocabulary is empty or its ids are no small integers. {_REMEDY}")
        raw = [""] * (max(i for i in ids.values() if isinstance(i, int)) + 1)
        kinds = [int(TokenKind.UNUSED)] * len(raw)
        has_bytes = self._model.get("byte_fallback") is True
        for content, token_id in listed.items():
            if isinstance(token_id, int):
                raw[token_id] = content
                is_byte = has_bytes and len(content) == _BYTE_TOKEN_LENGTH and content.startswith("<0x")
                kinds[token_id] = TokenKind.BYTE if is_byte else TokenKind.NORMAL
        for token in self._added:
            raw[token.id] = token.content
            kinds[token.id] = TokenKind.CONTROL if token.special else TokenKind.USER_DEFINED
        return raw, kinds

    def _named(self, name: str, raw: Sequence[str]) -> int | None:
        """Id of ``bos_token`` or ``eos_token`` in tokenizer_config.json: a name, or an object with the name in it."""
        value = self._files.config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        return raw.index(value) if isinstance(value, str) and value and value in raw else None

    def _adds_bos(self, bos: int | None, raw: Sequence[str]) -> bool:
        """Whether a bare prompt begins with BOS: by the tokenizer's post-processor, else by the configuration."""
        if bos is None or not 0 <= bos < len(raw):  # the vocabulary refuses the latter
            return False
        processor = self._files.tokenizer.get("post_processor")
        parts = processor.get("processors", [processor]) if isinstance(processor, Mapping) else []
        for part in parts if isinstance(parts, list) else []:
            single = part.get("single") if isinstance(part, Mapping) else None
            first = single[0] if isinstance(single, list) and single else None
            special = first.get("SpecialToken") if isinstance(first, Mapping) else None
            if isinstance(special, Mapping) and special.get("id") == raw[bos]:
                return True
        return processor is None and self._files.config.get("add_bos_token") is True


class _AddedToken(msgspec.Struct, frozen=True):
    id: int
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it takes exactly its own letters out of a text, whatever stands around them."""
        return self.special or (self.content.isascii() and not (self.single_word or self.lstrip or self.rstrip))


def _added(tokenizer: Mapping[str, object]) -> list[_AddedToken]:
    try:
        added = msgspec.convert(tokenizer.get("added_tokens") or [], list[_AddedToken])
    except msgspec.ValidationError:
        raise ModelFileError(f"tokenizer.json: added_tokens is no list of tokens. {_REMEDY}") from None
    if not all(0 <= token.id < _MAX_TOKENS and token.content for token in added):
        raise ModelFileError(f"tokenizer.json: an added token has no name or no sensible id. {_REMEDY}")
    return added


def _pre_tokeniser(tokenizer: Mapping[str, object], added: Sequence[_AddedToken]) -> str | None:
    """The name in ``pretokenise`` of what happens before byte-pair encoding; None if it is unknown there."""
    normalizer, pre, model = (tokenizer.get(key) for key in ("normalizer", "pre_tokenizer", "model"))
    plain = isinstance(model, Mapping) and not any(
        model.get(key) for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    )
    if not isinstance(pre, Mapping) or not plain or not all(token.is_plain for token in added):
        return None
    nfc = _matches(normalizer, {"type": "NFC"})
    if normalizer is not None and not nfc:
        return None
    pattern = _pattern(pre)
    return next((name for name, known in PRE_TOKENISERS.items() if (known.pattern, known.nfc) == (pattern, nfc)), None)


def _pattern(pre: Mapping[str, object]) -> str | None:
    """The stretches that a pre-tokeniser cuts, as one regular expression; None if it does something else."""
    if _matches(pre, _GPT2_SPLIT):
        return PRE_TOKENISERS["gpt-2"].pattern
    steps = pre.get("pretokenizers")
    if pre.get("type") != "Sequence" or not isinstance(steps, list) or len(steps) != 2:
        return None
    first, second = steps
    if _matches(first, _DIGITS) and _matches(second, _GPT2_SPLIT):
        return PRE_TOKENISERS["smollm"].pattern
    if not _matches(first, _SPLIT) or not _matches(second, _BYTES_ONLY):
        return None
    pattern = first.get("pattern")
    found = pattern.get("Regex") if isinstance(pattern, Mapping) else None
    return found if isinstance(found, str) else None


def _matches(value: object, expected: Mapping[str, object]) -> bool:
    """Whether an object has these members; ``use_regex`` is true where older files leave it out."""
    if not isinstance(value, Mapping):
        return False
    return all(value.get(key, True if key == "use_regex" else None) == item for key, item in expected.items())


def _is_byte_level(tokenizer: Mapping[str, object]) -> bool:
    """Whether tokens are written in GPT-2's byte alphabet: the decoder or the pre-tokeniser says so."""
    parts: list[object] = []
    for key, several in (("decoder", "decoders"), ("pre_tokenizer", "pretokenizers")):
        step = tokenizer.get(key)
        inner = step.get(several) if isinstance(step, Mapping) else None
        parts += inner if isinstance(inner, list) else [step]
    return any(isinstance(part, Mapping) and part.get("type") == "ByteLevel" for part in parts)


def _merges(model: Mapping[str, object]) -> list[str]:
    """The merges as "left right" lines; newer files list pairs."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise ModelFileError(f"tokenizer.json: model.merges is no list. {_REMEDY}")
    return [merge if isinstance(merge, str) else _line(merge) for merge in merges]


def _line(pair: object) -> str:
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
        raise ModelFileError(f"tokenizer.json: a merge is no pair of tokens. {_REMEDY}")
    return f"{pair[0]} {pair[1]}"


def _object(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = parent.get(key)
    if not isinstance(value, Mapping):
        raise ModelFileError(f"tokenizer.json has no {key}. {_REMEDY}")
    return value
