"""``tokenizer.json``: the ids are those of the library that wrote the file, whichever encoder is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from reference.tiny_folder import QWEN_SPLIT, tokenizer
from reference.tiny_model import CONTROL, LLAMA, QWEN2, vocabulary
from zerolayer.errors import ModelFileError, StartupError
from zerolayer.text.encode import PROBES
from zerolayer.text.hf_tokenizer import HfTokenizer, TokenizerFiles
from zerolayer.text.pretokenise import PRE_TOKENISERS
from zerolayer.text.vocabulary import TokenKind

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
Change = Callable[[dict[str, Any]], None]


def read(
    parsed: dict[str, Any], config: dict[str, Any] | None = None, bos: int | None = None, eos: tuple[int, ...] = ()
) -> HfTokenizer:
    return HfTokenizer.read(TokenizerFiles(parsed, config or {}, bos, eos))


def judge(parsed: dict[str, Any]) -> Callable[[str], list[int]]:
    """The library on the same file without control tokens, which no text may become here."""
    bare = {**parsed, "added_tokens": [token for token in parsed["added_tokens"] if not token["special"]]}
    library = Tokenizer.from_str(json.dumps(bare))
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)


def split_by(pattern: str, normalizer: dict[str, Any] | None = None) -> dict[str, Any]:
    """The tiny tokeniser with another pattern."""
    parsed = tokenizer(QWEN2)
    parsed["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    parsed["normalizer"] = normalizer
    return parsed


def sentencepiece(prepend_scheme: str = "always") -> dict[str, Any]:
    """A vocabulary as Llama 2 and Mistral have it."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "\u2581a", "ab"]
    merges = [("\u2581", "a"), ("a", "b")]
    built = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    built.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme=prepend_scheme, split=False)
    built.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    built.add_special_tokens(["<unk>", "<s>", "</s>"])
    built.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return json.loads(built.to_str())


KNOWN = {
    "smollm": tokenizer(LLAMA),
    "qwen2": tokenizer(QWEN2),
    "llama 3": split_by(PRE_TOKENISERS["llama3"].pattern),
    "gpt-2": tokenizer(LLAMA) | {"pre_tokenizer": GPT2},
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_ways_to_cut_text_take_the_house_s_encoder(name: str) -> None:
    assert read(KNOWN[name]).encoder().name == "tiktoken"


UNKNOWN: dict[str, dict[str, Any]] = {
    "another pattern": split_by(r"\s+|\S+"),
    "another normaliser": tokenizer(QWEN2) | {"normalizer": {"type": "NFKC"}},
    "a known pattern that wants NFC, without it": split_by(QWEN_SPLIT),
    "no normaliser where none is known": tokenizer(LLAMA) | {"normalizer": {"type": "Lowercase"}},
    "SentencePiece": sentencepiece(),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_ways_take_the_library(name: str) -> None:
    assert read(UNKNOWN[name]).encoder().name == "tokenizers"


@pytest.mark.parametrize("name", [*KNOWN, *UNKNOWN])
@pytest.mark.parametrize("text", PROBES)
def test_ids_are_the_library_s(name: str, text: str) -> None:
    parsed = {**KNOWN, **UNKNOWN}[name]
    assert read(parsed).encoder().encode(text) == judge(parsed)(text)


@pytest.mark.parametrize("name", [*KNOWN, *UNKNOWN])
def test_no_text_becomes_a_control_token(name: str) -> None:
    made = read({**KNOWN, **UNKNOWN}[name])
    ids = made.encoder().encode("".join(made.vocabulary.special_ids))
    assert not set(ids) & set(made.vocabulary.special_ids.values()) - {made.vocabulary.special_ids.get("<unk>")}


def test_a_control_token_that_ignored_merges_would_find_is_not_found() -> None:
    parsed = tokenizer(LLAMA)
    parsed["model"]["ignore_merges"] = True
    parsed["model"]["vocab"]["stop"] = 307
    parsed["added_tokens"].append({"id": 307, "content": "stop", "special": True})
    assert 307 not in read(parsed).encoder().encode("stop")


def test_a_whole_token_that_no_merge_makes_is_found_where_merges_are_ignored() -> None:
    parsed = tokenizer(LLAMA)
    parsed["model"]["ignore_merges"] = True
    parsed["model"]["vocab"]["xyzzy"] = 307
    assert read(parsed).encoder().encode("xyzzy") == [307] == judge(parsed)("xyzzy")


def test_an_added_token_that_is_text_is_never_split() -> None:
    parsed = tokenizer(LLAMA)
    parsed["added_tokens"].append({"id": 307, "content": "<think>", "special": False})
    made = read(parsed)
    assert made.encoder().encode("a<think>b")[1] == 307
    assert made.vocabulary.texts[307] == "<think>"


def test_an_added_token_that_takes_white_space_with_it_needs_the_library() -> None:
    parsed = tokenizer(LLAMA)
    strange = {**parsed["added_tokens"][0], "id": 307, "content": "<mask>", "special": False, "lstrip": True}
    parsed["added_tokens"].append(strange)
    encoder = read(parsed).encoder()
    assert encoder.name == "tokenizers"
    assert encoder.encode("a  <mask>b") == judge(parsed)("a  <mask>b")


def test_merges_as_lines_are_the_same_as_pairs() -> None:
    pairs, lines = tokenizer(LLAMA), tokenizer(LLAMA)
    lines["model"]["merges"] = vocabulary()[2]
    assert read(lines).vocabulary.merges == read(pairs).vocabulary.merges


def test_pieces_of_a_sentencepiece_vocabulary_have_spaces_and_bytes() -> None:
    words = read(sentencepiece()).vocabulary
    assert words.pieces[words.raw.index(b"<0x0A>")] == b"\n"
    assert words.pieces[words.raw.index("\u2581a".encode())] == b" a"
    assert words.kinds[1] == TokenKind.CONTROL


def test_a_space_before_the_first_text_only_is_left_out_behind_a_control_token() -> None:
    made = read(sentencepiece("first"))
    first = made.encoder()
    inner = made.inner_encoder(first)
    words = made.vocabulary.raw
    assert [words[i] for i in first.encode("a")] == ["\u2581a".encode()]
    assert [words[i] for i in inner.encode("a")] == [b"a"]


def test_usually_one_encoder_serves_first_and_later_texts() -> None:
    made = read(tokenizer(LLAMA))
    encoder = made.encoder()
    assert made.inner_encoder(encoder) is encoder


def test_the_post_processor_says_whether_a_prompt_begins_with_bos() -> None:
    assert read(sentencepiece(), {"bos_token": "<s>"}).vocabulary.add_bos
    assert not read(tokenizer(LLAMA), {"bos_token": CONTROL[1]}).vocabulary.add_bos


def test_without_a_post_processor_the_configuration_says_it() -> None:
    assert read(tokenizer(LLAMA), {"bos_token": CONTROL[1], "add_bos_token": True}).vocabulary.add_bos


def test_bos_and_eos_come_from_names_and_from_ids() -> None:
    named = read(tokenizer(LLAMA), {"bos_token": {"content": CONTROL[1]}, "eos_token": CONTROL[2]}).vocabulary
    numbered = read(tokenizer(LLAMA), bos=1, eos=(2, 0)).vocabulary
    assert (named.bos_id, named.eos_id) == (numbered.bos_id, numbered.eos_id) == (1, 2)
    assert numbered.eos_ids == {0, 2}


def test_ids_without_a_token_stand_for_nothing() -> None:
    parsed = tokenizer(LLAMA)
    parsed["added_tokens"].append({"id": 400, "content": "<|later|>", "special": True})
    words = read(parsed).vocabulary
    assert (words.size, words.texts[350], words.special_ids["<|later|>"]) == (401, "", 400)


def test_another_kind_of_model_is_refused() -> None:
    parsed = tokenizer(LLAMA)
    parsed["model"]["type"] = "Unigram"
    with pytest.raises(StartupError, match="this build knows BPE"):
        read(parsed)


DAMAGED: dict[str, Change] = {
    "no model": lambda parsed: parsed.pop("model"),
    "no vocabulary": lambda parsed: parsed["model"].update(vocab={}),
    "a vocabulary that is a list": lambda parsed: parsed["model"].update(vocab=[]),
    "an id that is text": lambda parsed: parsed["model"]["vocab"].update(x="1"),
    "an id of 2^40": lambda parsed: parsed["model"]["vocab"].update(x=1 << 40),
    "a negative id": lambda parsed: parsed["model"]["vocab"].update(x=-1),
    "merges of three": lambda parsed: parsed["model"].update(merges=[["a", "b", "c"]]),
    "no merges": lambda parsed: parsed["model"].pop("merges"),
    "added tokens that are none": lambda parsed: parsed.update(added_tokens=[{"id": "0"}]),
    "an added token of 2^40": lambda parsed: parsed.update(added_tokens=[{"id": 1 << 40, "content": "x"}]),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_clear_error(case: str) -> None:
    parsed = tokenizer(LLAMA)
    DAMAGED[case](parsed)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        read(parsed)


def test_what_the_library_itself_refuses_is_one_clear_error() -> None:
    parsed = split_by(r"(unclosed")
    with pytest.raises(ModelFileError, match="does not read the model's"):
        read(parsed).encoder()


def test_the_library_s_own_file_of_a_known_kind_is_recognised() -> None:
    pieces, _, merges = vocabulary()
    built = Tokenizer(
        models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[tuple(m.split(" ")) for m in merges])
    )
    built.normalizer = normalizers.NFC()
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(name, special=True) for name in CONTROL])
    assert read(json.loads(built.to_str())).vocabulary.pre == "qwen2"


def test_added_tokens_keep_their_ids_in_the_library() -> None:
    parsed = split_by(r"\s+|\S+")
    for token_id, name in ((310, "<|x|>"), (320, "<tool_call>")):
        added = {**parsed["added_tokens"][0], "id": token_id, "content": name, "special": name == "<|x|>"}
        parsed["added_tokens"].append(added)
    encoder = read(parsed).encoder()
    assert encoder.name == "tokenizers"
    assert encoder.encode("<tool_call>") == [320]
