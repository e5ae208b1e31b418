"""Both engines give documents that their schema allows; the bundled model writes all of them in the judges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from reference.documents import SLOTS, held_to, run, text_of, validate
from reference.schemas import schemas
from reference.tiny_model import EOS_ID
from zerolayer.model.engine import Generation
from zerolayer.model.load import mock_engine
from zerolayer.model.native_engine import NativeEngine
from zerolayer.model.source import ModelSource, open_source
from zerolayer.text.grammar import Grammars
from zerolayer.text.tool_format import HERMES
from zerolayer.wire.schema import FinishReason, Sampling


@pytest.fixture(scope="module")
def source(bundled_path) -> Iterator[ModelSource]:
    opened = open_source(bundled_path)
    with closing(opened.weights):
        opened.vocabulary.eos_ids = frozenset({EOS_ID})  # what ends a generation of the tests' engines
        yield opened


@pytest.fixture(scope="module")
def grammars(source: ModelSource) -> Grammars:
    return Grammars(source.vocabulary, source.build_encoder(), HERMES, source.vocabulary.size)


def test_every_document_of_two_hundred_schemas_is_valid(source: ModelSource, grammars: Grammars) -> None:
    given = schemas(200)
    engine = mock_engine(source.vocabulary, slots=SLOTS, slot_tokens=4096, chunk_tokens=64, step_us=0)
    generations = [
        Generation((at, 5), Sampling(seed=at), 4000, grammar=held_to(grammars, schema))
        for at, schema in enumerate(given)
    ]
    for schema, tokens in zip(given, run(engine, generations), strict=True):
        assert tokens[-1].finish is FinishReason.STOP
        assert not any(token.broken for token in tokens)
        validate(schema, text_of(source.vocabulary, tokens))


def test_the_bundled_model_writes_what_a_schema_allows(
    source: ModelSource, grammars: Grammars, bundled_engine: NativeEngine
) -> None:
    given = schemas()[1:5]
    prompt = source.build_encoder().encode("A record as JSON: ")
    generations = [
        Generation(prompt, Sampling(seed=at), 60, ignore_eos=True, grammar=held_to(grammars, schema))
        for at, schema in enumerate(given)
    ]
    for schema, tokens in zip(given, run(bundled_engine, generations, slots=4), strict=True):
        assert not any(token.broken for token in tokens)
        if tokens[-1].finish is FinishReason.STOP:
            validate(schema, text_of(source.vocabulary, tokens))
