"""Documents that an engine writes under a schema, and whether the schema allows them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import jsonschema

from reference.schemas import Schema
from zerolayer.model.engine import Engine, Generation, SampledToken, StepPlan
from zerolayer.text.grammar import Grammar, Grammars
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import FinishReason, OutputFormat, Request, Route

SLOTS = 8


def held_to(grammars: Grammars, schema: Schema) -> Grammar:
    """The grammar of a request for ``schema``."""
    request = Request(Route.CHAT, "m", output=OutputFormat(json.dumps(schema).encode()))
    grammar = grammars.of(request)
    assert grammar is not None
    return grammar


def run(engine: Engine, generations: Sequence[Generation], slots: int = SLOTS) -> list[list[SampledToken]]:
    """The tokens of each generation, ``slots`` of them at a time."""
    waiting = list(enumerate(generations))
    owner: dict[int, int] = {}
    tokens: list[list[SampledToken]] = [[] for _ in generations]
    decoding: list[int] = []
    while waiting or decoding:
        prefill = next((slot for slot in range(slots) if slot not in owner), -1) if waiting else -1
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


def text_of(vocabulary: Vocabulary, tokens: Sequence[SampledToken]) -> str:
    """What a generation shows."""
    shown = [token.token_id for token in tokens if token.finish is not FinishReason.STOP]
    return b"".join([vocabulary.pieces[token_id] for token_id in shown]).decode()


def validate(schema: Schema, text: str) -> None:
    """Raises ``jsonschema.ValidationError``."""
    checker = jsonschema.FormatChecker(formats=("date", "email", "ipv4", "ipv6", "uuid"))
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text))
