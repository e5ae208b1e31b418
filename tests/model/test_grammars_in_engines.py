"""Both engines give documents that their schema allows, whatever else is asked of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing

import jsonschema
import pytest

from reference.schemas import Schema, schemas
from zerolayer.model.engine import Engine, Generation, SampledToken, StepPlan
from zerolayer.model.load import mock_engine
from zerolayer.model.source import ModelSource, open_source
from zerolayer.text.grammar import Grammar, Grammars
from zerolayer.text.tool_format import HERMES
from zerolayer.wire.schema import FinishReason, OutputFormat, Request, Route, Sampling

SLOTS = 8


@pytest.fixture(scope="module")
def source(bundled_path) -> Iterator[ModelSource]:
    opened = open_source(bundled_path)
    with closing(opened.weights):
        yield opened


@pytest.fixture(scope="module")
def grammars(source: ModelSource) -> Grammars:
    return Grammars(source.vocabulary, source.build_encoder(), HERMES, source.vocabulary.size)


def held_to(grammars: Grammars, schema: Schema) -> Grammar:
    request = Request(Route.CHAT, "m", output=OutputFormat(json.dumps(schema).encode()))
    grammar = grammars.of(request)
    assert grammar is not None
    return grammar


def run(engine: Engine, generations: Sequence[Generation]) -> list[list[SampledToken]]:
    """The tokens of each generation, ``SLOTS`` of them at a time."""
    waiting = list(enumerate(generations))
    owner: dict[int, int] = {}
    tokens: list[list[SampledToken]] = [[] for _ in generations]
    decoding: list[int] = []
    while waiting or decoding:
        prefill = next((slot for slot in range(SLOTS) if slot not in owner), -1) if waiting else -1
        if prefill >= 0:
            owner[prefill], generation = waiting.pop(0)
            engine.open(prefill, generation)
        left = engine.prefill_left(prefill) if prefill >= 0 else 0
        for token in engine.step(StepPlan(tuple(decoding), prefill, left)):
            tokens[owner[token.slot]].append(token)
            if token.finish is not None:
                engine.close(token.slot)
                del owner[token.slot]
        decoding = list(owner)
    return tokens


def text_of(source: ModelSource, tokens: Sequence[SampledToken]) -> str:
    shown = [token.token_id for token in tokens if token.finish is not FinishReason.STOP]
    return b"".join([source.vocabulary.pieces[token_id] for token_id in shown]).decode()


def validate(schema: Schema, text: str) -> None:
    checker = jsonschema.FormatChecker(formats=("date", "email", "ipv4", "ipv6", "uuid"))
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text))


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
        validate(schema, text_of(source, tokens))
