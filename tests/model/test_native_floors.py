"""The floors that step times are compared with: they measure, and they leave the engine as it was."""

from __future__ import annotations

import time

import pytest

from reference.engines import Engines
from reference.schedule import alone
from reference.tiny_model import SMOL
from zerolayer.model.engine import Generation, StepPlan
from zerolayer.wire.schema import Sampling

SLOTS, SLOT_TOKENS = 3, 64
ASKED = Generation([50, 51, 52], Sampling(temperature=0), 5, ignore_eos=True)


def test_measuring_changes_no_token(engines: Engines) -> None:
    engine = engines.open(SMOL, slots=SLOTS, slot_tokens=SLOT_TOKENS)
    before = alone(engine, ASKED)
    assert engine.read_once_ns(SLOTS, SLOT_TOKENS) > 0
    assert engine.spin_ns(1000) > 0
    assert engine.products_ns(10) > 0
    assert alone(engine, ASKED) == before


def test_a_step_tells_when_it_had_computed(engines: Engines) -> None:
    engine = engines.open(SMOL)
    engine.open(0, ASKED)
    begun = time.monotonic_ns()
    engine.step(StepPlan((), 0, 3))
    assert begun < engine.computed_ns <= time.monotonic_ns()


def test_a_longer_spin_takes_longer(engines: Engines) -> None:
    engine = engines.open(SMOL)
    assert min(engine.spin_ns(3_000_000) for _ in range(5)) > min(engine.spin_ns(1000) for _ in range(5))


def test_more_products_take_longer(engines: Engines) -> None:
    engine = engines.open(SMOL)
    assert min(engine.products_ns(30_000) for _ in range(5)) > min(engine.products_ns(10) for _ in range(5))


def test_every_weight_of_a_step_is_counted_once(engines: Engines) -> None:
    shape = engines.open(SMOL).describe()
    one_panel = 32 * 64  # the least that a matrix can take
    assert engines.open(SMOL).weight_bytes >= shape.vocabulary // 32 * one_panel


@pytest.mark.parametrize(("slots", "tokens"), [(-1, 0), (1000, 0), (0, -1), (0, 1_000_000)])
def test_only_contexts_that_exist_are_read(engines: Engines, slots: int, tokens: int) -> None:
    with pytest.raises(ValueError, match="no such context"):
        engines.open(SMOL, slots=SLOTS, slot_tokens=SLOT_TOKENS).read_once_ns(slots, tokens)
