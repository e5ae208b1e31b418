"""Encoding: the same ids as Hugging Face's tokenizers, whatever the text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.errors import ModelFileError, StartupError
from zerolayer.text.encode import PROBES, Encoder, build_encoder
from zerolayer.text.pretokenise import PRE_TOKENISERS
from zerolayer.text.vocabulary import BYTE_ALPHABET, Vocabulary

# Characters that this Python knows: libraries differ on whether younger ones are letters.
ASSIGNED = st.characters(exclude_categories=["Cs", "Cn"])
FRAGMENTS = st.sampled_from(
    (
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'s",
        "'S",
        "'ll",
        "the",
        " the",
        "1",
        "12",
        "1234",
        "\x00",
        "\x04",
        "\x1d",
        "\u3000",
        "\u0301",
        "e\u0301",
        "\ufb01",
        "\u00b2",
        "\u0663",
        "\U000e0041",
        "<|im_end|>",
        "_",
        "...",
        "\u2581",
        "\u00a0",
    )
)
TEXTS = st.lists(st.one_of(FRAGMENTS, st.text(ASSIGNED, max_size=3)), max_size=14).map("".join)


def small(pre: str, **changes: object) -> dict[str, object]:
    """A byte-level vocabulary of all bytes and a few merges."""
    letters = list(BYTE_ALPHABET)
    space = BYTE_ALPHABET[ord(" ")]
    merges = [f"{space} t", "h e", f"{space}t he", "1 2", f"{space} {space}", "a b", "ab ab", "' s", "Ã ©"]
    tokens = [*letters, *(merge.replace(" ", "") for merge in merges), "<|end|>"]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
    }
    return metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


def judge_of(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Hugging Face's tokenizer of a small vocabulary, cut by its pre-tokeniser's pattern."""
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    pre = PRE_TOKENISERS[metadata["tokenizer.ggml.pre"]]
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    judge = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=[tuple(merge.split(" ")) for merge in merges]))
    if pre.nfc:
        judge.normalizer = tokenizers.normalizers.NFC()
    judge.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(pre.pattern), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return judge


@pytest.fixture
def without_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra ``hf`` were not installed."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)


def test_the_bundled_vocabulary_is_encoded_by_tiktoken(encoder: Encoder) -> None:
    assert encoder.name == "tiktoken"


@pytest.mark.parametrize("text", PROBES)
def test_probe_texts_are_encoded_as_by_tokenizers(
    encoder: Encoder, smollm_judge: tokenizers.Tokenizer, text: str
) -> None:
    assert encoder.encode(text) == smollm_judge.encode(text, add_special_tokens=False).ids


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_any_text_is_encoded_as_by_tokenizers(encoder: Encoder, smollm_judge: tokenizers.Tokenizer, text: str) -> None:
    assert encoder.encode(text) == smollm_judge.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "text", ["Hello world 12 \n" * 8000, "\n" * 70_001 + "1", "\u00e9" * 66_000, "x\x04y" * 30_000]
)
def test_long_texts_are_encoded_as_by_tokenizers(
    encoder: Encoder, smollm_judge: tokenizers.Tokenizer, text: str
) -> None:
    assert encoder.encode(text) == smollm_judge.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", [" " * (1 << 20), "\r\n" * (1 << 19), "a" * (1 << 20), "'" * (1 << 18)])
def test_a_megabyte_of_one_character_is_encoded(encoder: Encoder, vocabulary: Vocabulary, text: str) -> None:
    assert b"".join(map(vocabulary.piece_bytes, encoder.encode(text))).decode() == text


@pytest.mark.parametrize("pre", sorted(PRE_TOKENISERS))
def test_every_pre_tokeniser_is_encoded_by_tiktoken_as_by_tokenizers(pre: str) -> None:
    metadata = small(pre)
    encoder, judge = build_encoder(Vocabulary.from_gguf(metadata)), judge_of(metadata)
    assert encoder.name == "tiktoken"

    @settings(max_examples=100, deadline=None)
    @given(TEXTS)
    def check(text: str) -> None:
        assert encoder.encode(text) == judge.encode(text, add_special_tokens=False).ids

    check()


def test_smollm_cuts_as_its_own_tokenizer_does(smollm_judge: tokenizers.Tokenizer) -> None:
    splits = smollm_judge.pre_tokenizer.pre_tokenize_str("a  12 \n3 it's")
    assert [piece for piece, _ in splits] == ["a", "ĠĠ", "1", "2", "ĠĊ", "3", "Ġit", "'s"]


@pytest.mark.parametrize("name", ["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
def test_text_never_becomes_a_control_token(encoder: Encoder, vocabulary: Vocabulary, name: str) -> None:
    ids = encoder.encode(f"{name}a {name}\n{name}")
    assert not set(ids) & set(vocabulary.special_ids.values())
    assert b"".join(map(vocabulary.piece_bytes, ids)).decode() == f"{name}a {name}\n{name}"


def test_a_lone_surrogate_counts_as_a_replacement_character(encoder: Encoder) -> None:
    assert encoder.encode("a\ud800b") == encoder.encode("a\ufffdb")
    assert encoder.encode("\x04\ud800") == encoder.encode("\x04\ufffd")


def test_ids_that_do_not_rise_with_the_merges_are_translated() -> None:
    metadata = small("gpt-2")
    tokens, kinds = list(reversed(metadata["tokenizer.ggml.tokens"])), [3] + [1] * 265  # type: ignore[call-overload]
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.eos_token_id": 0}
    encoder, judge = build_encoder(Vocabulary.from_gguf(metadata)), judge_of(metadata)
    text = "the  the 12 abab it's caf\u00e9"
    assert encoder.name == "tiktoken"
    assert encoder.encode(text) == judge.encode(text, add_special_tokens=False).ids


def test_qwen2_text_is_brought_to_normal_form_c() -> None:
    encoder = build_encoder(Vocabulary.from_gguf(small("qwen2")))
    assert encoder.encode("e\u0301") == encoder.encode("\u00e9")


def unprovable() -> dict[str, object]:
    """A vocabulary with a token that its own merges cannot reach, so that strings and pairs differ."""
    metadata = small("gpt-2")
    merges = ["b c", "a b", "ab c"]
    tokens = [*BYTE_ALPHABET, "bc", "ab", "abc"]
    return metadata | {
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.eos_token_id": 0,
    }


def test_where_tiktoken_is_not_proven_tokenizers_encodes() -> None:
    encoder = build_encoder(Vocabulary.from_gguf(unprovable()))
    assert encoder.name == "tokenizers"
    assert encoder.encode("xabc") == judge_of(unprovable()).encode("xabc", add_special_tokens=False).ids


@pytest.mark.usefixtures("without_tokenizers")
def test_without_the_extra_the_error_names_it() -> None:
    with pytest.raises(StartupError, match=r"pip install 'zerolayer\[hf\]'"):
        build_encoder(Vocabulary.from_gguf(unprovable()))


@pytest.mark.usefixtures("without_tokenizers")
def test_the_bundled_vocabulary_needs_no_extra(vocabulary: Vocabulary) -> None:
    assert build_encoder(vocabulary).name == "tiktoken"


def test_an_unknown_pre_tokeniser_is_a_clear_error() -> None:
    with pytest.raises(StartupError, match="smollm"):
        build_encoder(Vocabulary.from_gguf(small("something-new")))


def test_an_unknown_kind_of_vocabulary_is_a_clear_error() -> None:
    with pytest.raises(StartupError, match="not supported"):
        build_encoder(Vocabulary.from_gguf(small("gpt-2", model="bert")))


def test_a_byte_level_vocabulary_without_bytes_is_a_clear_error() -> None:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["<|end|>", "word"],
        "tokenizer.ggml.token_type": [3, 1],
    }
    with pytest.raises(StartupError, match="no single bytes"):
        build_encoder(Vocabulary.from_gguf(metadata))


def test_added_text_tokens_are_found_in_text_longest_first() -> None:
    metadata = small("gpt-2")
    tokens = [*metadata["tokenizer.ggml.tokens"], "<tool>", "<tool>x"]  # type: ignore[misc]
    kinds = [*metadata["tokenizer.ggml.token_type"], 4, 4]  # type: ignore[misc]
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    encoder = build_encoder(Vocabulary.from_gguf(metadata))
    plain = build_encoder(Vocabulary.from_gguf(small("gpt-2")))
    first, second = tokens.index("<tool>"), tokens.index("<tool>x")
    assert encoder.encode("the <tool>xy<tool>") == [*plain.encode("the "), second, *plain.encode("y"), first]


SENTENCEPIECE: dict[str, object] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"]
    + [f"<0x{byte:02X}>" for byte in range(256)]
    + ["\u2581", "t", "h", "e", "\u2581t", "he", "\u2581the", "re"],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 8,
    "tokenizer.ggml.scores": [0.0] * 259 + [-1e9, -1e9, -1e9, -1e9, -1.0, -2.0, -3.0, -4.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def test_a_sentencepiece_vocabulary_merges_by_score_and_falls_back_to_bytes() -> None:
    vocabulary = Vocabulary.from_gguf(SENTENCEPIECE)
    encoder = build_encoder(vocabulary)
    assert encoder.name == "tokenizers"
    assert [vocabulary.raw[token].decode() for token in encoder.encode("the he\u00e9")] == [
        "\u2581the",
        "\u2581",
        "he",
        "<0xC3>",
        "<0xA9>",
    ]


@given(st.text(st.sampled_from("the <s>/\u00e9\n"), max_size=20))
def test_a_sentencepiece_vocabulary_gives_the_text_back(text: str) -> None:
    vocabulary = Vocabulary.from_gguf(SENTENCEPIECE)
    ids = build_encoder(vocabulary).encode(text)
    whole = b"".join(map(vocabulary.piece_bytes, ids)).decode()
    assert whole == (f" {text}" if text else "")
    assert not set(ids) & {1, 2}


def test_a_sentencepiece_vocabulary_without_scores_is_a_clear_error() -> None:
    metadata = {key: value for key, value in SENTENCEPIECE.items() if not key.endswith("scores")}
    with pytest.raises(ModelFileError, match="scores"):
        build_encoder(Vocabulary.from_gguf(metadata))


@pytest.mark.usefixtures("without_tokenizers")
def test_a_sentencepiece_vocabulary_without_the_extra_names_it() -> None:
    with pytest.raises(StartupError, match=r"pip install 'zerolayer\[hf\]'"):
        build_encoder(Vocabulary.from_gguf(SENTENCEPIECE))
