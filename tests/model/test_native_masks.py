"""Answers that are held to a grammar: what the sampler does with a mask, and that nothing else changes."""

from __future__ import annotations

import ctypes
import json
from contextlib import closing

import jsonschema
import numpy as np
import pytest

from reference.engines import Engines, TinyModels
from reference.llama import log_softmax
from reference.schedule import Run, alone, together
from reference.tiny_model import EOS_ID, LLAMA_64
from zerolayer.model.engine import Broken, Generation, SampledToken
from zerolayer.model.source import open_source
from zerolayer.text.grammar import Grammar, Grammars
from zerolayer.text.tool_format import HERMES
from zerolayer.text.vocabulary import Vocabulary
from zerolayer.wire.schema import FinishReason, OutputFormat, Request, Route, Sampling

PROMPT = (40, 41, 42, 41)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "size": {"type": "integer", "minimum": -20, "maximum": 3000},
        "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "maxItems": 3},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
}
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(seed=1),
    Sampling(seed=2, temperature=2.0, top_p=0.5),
    Sampling(seed=3, top_k=5, min_p=0.01),
    Sampling(seed=4, repetition_penalty=1.4, presence_penalty=1.0, frequency_penalty=0.5),
    Sampling(seed=5, logit_bias=((EOS_ID, 100.0), (50, 100.0))),
    Sampling(seed=6, min_tokens=100),
)


class Only:
    """A grammar that always allows the tokens ``allowed``, and fails after ``lasts`` masks."""

    def __init__(self, allowed: list[int], lasts: int = 1000) -> None:
        self._allowed = allowed
        self._left = lasts

    def start(self) -> Only:
        return self

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        self._left -= 1
        row = (ctypes.c_uint32 * (size // 4)).from_address(address)
        ctypes.memset(address, 0, size)
        for token in self._allowed:
            row[token // 32] |= 1 << (token % 32)

    def is_error(self) -> bool:
        return self._left < 0

    def consume_token(self, token: int) -> bool:
        return token in self._allowed


@pytest.fixture(scope="module")
def vocabulary(tiny_models: TinyModels) -> Vocabulary:
    source = open_source(tiny_models.path(LLAMA_64))
    with closing(source.weights):
        return source.vocabulary


@pytest.fixture(scope="module")
def grammar(tiny_models: TinyModels) -> Grammar:
    source = open_source(tiny_models.path(LLAMA_64))
    with closing(source.weights):
        source.vocabulary.eos_ids = frozenset({EOS_ID})  # what ends a generation of the tests' engines
        grammars = Grammars(source.vocabulary, source.build_encoder(), HERMES, source.vocabulary.size)
        found = grammars.of(Request(Route.CHAT, "m", output=OutputFormat(json.dumps(SCHEMA).encode())))
    assert found is not None
    return found


def held(sampling: Sampling, grammar: object, tokens: int = 120, **more: bool) -> Generation:
    return Generation(PROMPT, sampling, tokens, grammar=grammar, **more)  # type: ignore[arg-type]


def document(vocabulary: Vocabulary, tokens: list[SampledToken]) -> object:
    assert tokens[-1].finish is FinishReason.STOP
    return json.loads(b"".join([vocabulary.pieces[token.token_id] for token in tokens[:-1]]))


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_whatever_the_parameters_the_document_is_valid(engines: Engines, vocabulary, grammar, sampling) -> None:
    tokens = alone(engines.open(LLAMA_64), held(sampling, grammar))
    jsonschema.validate(document(vocabulary, tokens), SCHEMA)


def test_an_answer_with_a_grammar_ends_though_ends_are_to_be_ignored(engines: Engines, vocabulary, grammar) -> None:
    tokens = alone(engines.open(LLAMA_64), held(Sampling(seed=1), grammar, ignore_eos=True))
    jsonschema.validate(document(vocabulary, tokens), SCHEMA)


def test_masks_leave_the_bits_of_neighbours_and_neighbours_those_of_masked_slots(engines: Engines, grammar) -> None:
    engine = engines.open(LLAMA_64)
    generations = {
        0: held(Sampling(seed=1, top_logprobs=3), grammar),
        1: Generation(PROMPT, Sampling(seed=2, top_logprobs=3), 40),
        2: held(Sampling(temperature=0.0), grammar),
        3: Generation((50, 51), Sampling(temperature=0.0), 40, ignore_eos=True),
    }
    beside = together(engine, generations)
    assert beside == {slot: alone(engine, generation, slot) for slot, generation in generations.items()}


def test_the_best_of_the_allowed_tokens_is_chosen_and_its_logprob_is_the_raw_one(engines: Engines) -> None:
    engine = engines.open(LLAMA_64)
    raw = log_softmax(engine.logits(PROMPT))[-1]
    worst = [int(token) for token in np.argsort(raw) if token != EOS_ID][:40]
    (token,) = alone(engine, held(Sampling(temperature=0.0, top_logprobs=1), Only(worst), tokens=1))
    assert token.token_id == max(worst, key=lambda one: raw[one])
    assert token.logprob is not None
    assert token.logprob.logprob == pytest.approx(raw[token.token_id], abs=1e-4)
    assert token.logprob.top[0].token_id == int(np.argmax(raw))


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_only_allowed_token_is_chosen_however_unlikely(engines: Engines, sampling) -> None:
    engine = engines.open(LLAMA_64)
    unlikely = int(np.argmin(engine.logits(PROMPT)[-1]))
    tokens = alone(engine, held(sampling, Only([unlikely]), tokens=3))
    assert [token.token_id for token in tokens] == [unlikely] * 3


def test_a_slot_is_free_of_its_mask_when_it_is_used_again(engines: Engines) -> None:
    engine = engines.open(LLAMA_64)
    free = Generation(PROMPT, Sampling(temperature=0.0), 5)
    before = alone(engine, free)
    alone(engine, held(Sampling(temperature=0.0), Only([7]), tokens=2))
    assert alone(engine, free) == before


def test_an_answer_whose_grammar_gives_up_ends_broken(engines: Engines) -> None:
    engine = engines.open(LLAMA_64)
    engine.open(0, held(Sampling(), Only([7], lasts=1)))
    run = Run(engine, open={0}, tokens={0: []})
    run.to_the_end()
    assert [token.broken for token in run.tokens[0]] == [None, Broken.GRAMMAR]
