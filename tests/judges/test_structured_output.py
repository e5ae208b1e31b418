"""Two hundred schemas, and the bundled model writes a document for each: every one that is complete is valid."""

from __future__ import annotations

import pytest

from reference.documents import SLOTS, held_to, run, text_of, validate
from reference.schemas import schemas
from zerolayer.contract import load
from zerolayer.model.engine import Generation
from zerolayer.model.load import load_model
from zerolayer.wire.schema import FinishReason, Sampling

pytestmark = pytest.mark.judge


def test_every_document_of_the_bundled_model_is_valid() -> None:
    contract = load(None, {}, {"slots": str(SLOTS), "slot-tokens": "512"}).contract
    loaded = load_model(contract, lambda line: None)
    try:
        given = schemas(200)
        prompt = loaded.encoder.encode("Here is a short record as JSON: ")
        generations = [
            Generation(prompt, Sampling(0.8, seed=at), 200, grammar=held_to(loaded.grammars, schema))
            for at, schema in enumerate(given)
        ]
        complete = 0
        for schema, tokens in zip(given, run(loaded.engine, generations), strict=True):
            assert not any(token.broken for token in tokens)
            if tokens[-1].finish is FinishReason.STOP:
                complete += 1
                validate(schema, text_of(loaded.vocabulary, tokens))
        assert complete > 160
    finally:
        loaded.engine.shutdown()
