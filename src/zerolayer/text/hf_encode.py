"""Encoding with Hugging Face's ``tokenizers``, from the extra ``hf``: for vocabularies where ``tiktoken`` is not exact.

The tokenizer is built from the model file's own vocabulary; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Set
from typing import Any

from zerolayer.errors import ModelFileError, StartupError
from zerolayer.text.pretokenise import PreTokeniser
from zerolayer.text.vocabulary import TokenKind, Vocabulary

_SPACE = "\u2581"


class HfEncoder:
    """A ``tokenizers.Tokenizer``, with control tokens kept out of its vocabulary."""

    def __init__(self, tokenizer: Any) -> None:
        self.name = "tokenizers"
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """See ``encode.Encoder``."""
        if not text:
            return []
        try:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):  # lone surrogates, which are no text to Rust
            clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            encoding = self._tokenizer.encode(clean, add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids


def _tokenizers() -> Any:
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise StartupError(
            "This model's vocabulary needs the package tokenizers, which is not installed. "
            "Run: pip install 'zerolayer[hf]'"
        ) from None


def byte_level(vocabulary: Vocabulary, pre: PreTokeniser) -> HfEncoder:
    """Byte-level BPE by the merges of the file."""
    hf = _tokenizers()
    ids = _id_of_token(vocabulary)
    merges = [tuple(merge.decode("utf-8", "replace").split(" ", 1)) for merge in vocabulary.merges]
    try:
        tokenizer = hf.Tokenizer(hf.models.BPE(vocab=ids, merges=merges))
    except Exception:  # noqa: BLE001 - the library raises plain Exception, and its text names the model's tokens
        raise ModelFileError("The model's vocabulary and merges do not fit together. Use another conversion.") from None
    if pre.nfc:
        tokenizer.normalizer = hf.normalizers.NFC()
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Sequence(
        [
            hf.pre_tokenizers.Split(hf.Regex(pre.pattern), "isolated"),
            hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return HfEncoder(tokenizer)


def sentencepiece(vocabulary: Vocabulary) -> HfEncoder:
    """SentencePiece BPE: of all neighbours the pair whose token has the best score is merged first.

    The file has scores but no merges; the pairs of every token, sorted by score, say the same
    (https://github.com/google/sentencepiece, ``bpe_model.cc``). Characters that are no token become byte tokens.
    """
    hf = _tokenizers()
    if len(vocabulary.scores) != vocabulary.size:
        raise ModelFileError("The model file has no tokenizer.ggml.scores. Use a GGUF file with a complete vocabulary.")
    ids = _id_of_token(vocabulary)
    unknown = next(
        (token for token, kind in zip(ids, _kinds(vocabulary, ids), strict=True) if kind == TokenKind.UNKNOWN), None
    )
    try:
        tokenizer = hf.Tokenizer(
            hf.models.BPE(
                vocab=ids,
                merges=_merges_by_score(vocabulary, ids),
                unk_token=unknown,
                fuse_unk=True,
                byte_fallback=True,
            )
        )
    except Exception:  # noqa: BLE001 - as above
        raise ModelFileError("The model's vocabulary does not fit together. Use another conversion.") from None
    steps = [hf.normalizers.Prepend(_SPACE)] if vocabulary.add_space_prefix else []
    tokenizer.normalizer = hf.normalizers.Sequence([*steps, hf.normalizers.Replace(" ", _SPACE)])
    return HfEncoder(tokenizer)


def from_tokenizer_json(tokenizer: Mapping[str, object], control: Set[str]) -> HfEncoder:
    """What a parsed ``tokenizer.json`` says, without its control tokens and without adding any.

    The names of ``control`` leave the vocabulary, so that no text becomes one of them.
    """
    hf = _tokenizers()
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    added = tokenizer.get("added_tokens")
    if not isinstance(model, Mapping) or not isinstance(vocab, Mapping):
        raise ModelFileError("tokenizer.json has no vocabulary. Download the model again, or use a GGUF file of it.")
    kept = {name: token_id for name, token_id in vocab.items() if name not in control or name == model.get("unk_token")}
    ordinary = [item for item in added if item["content"] not in control] if isinstance(added, list) else []
    # The library numbers added tokens anew unless the vocabulary has them.
    kept |= {item["content"]: item["id"] for item in ordinary}
    bare = {
        **tokenizer,
        "model": {**model, "vocab": kept},
        "added_tokens": ordinary,
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    try:
        return HfEncoder(hf.Tokenizer.from_str(json.dumps(bare)))
    except Exception:  # noqa: BLE001 - as above
        raise ModelFileError(
            "The package tokenizers does not read the model's tokenizer.json. Update it (pip install -U tokenizers), "
            "or use a GGUF file of the model."
        ) from None


def _kinds(vocabulary: Vocabulary, ids: dict[str, int]) -> list[int]:
    return [vocabulary.kinds[token_id] for token_id in ids.values()]


def _id_of_token(vocabulary: Vocabulary) -> dict[str, int]:
    """Tokens that text may become; names of control tokens are not among them, so text cannot become one."""
    hidden = (TokenKind.CONTROL, TokenKind.UNUSED, TokenKind.USER_DEFINED)
    ids: dict[str, int] = {}
    for token_id, (raw, kind) in enumerate(zip(vocabulary.raw, vocabulary.kinds, strict=True)):
        if kind not in hidden:
            ids.setdefault(raw.decode("utf-8", "replace"), token_id)
    return ids


def _merges_by_score(vocabulary: Vocabulary, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Every pair of tokens whose concatenation is a token, best token first."""
    ranked: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, token_id in ids.items():
        if vocabulary.kinds[token_id] != TokenKind.NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append((-vocabulary.scores[token_id], ids[left], ids[right], (left, right)))
    return [pair for *_, pair in sorted(ranked)]
