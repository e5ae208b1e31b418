"""Which program serves which sampling parameters."""

from __future__ import annotations

import pytest

from zerolayer.model.program import Program, program_of, smallest_covering
from zerolayer.wire.schema import Sampling


def test_temperature_zero_is_the_greedy_program() -> None:
    assert program_of(Sampling(temperature=0.0)) is Program.GREEDY


def test_truncation_does_not_matter_to_greedy() -> None:
    assert program_of(Sampling(temperature=0.0, top_k=5, top_p=0.5)) is Program.GREEDY


def test_temperature_alone_is_the_plain_program() -> None:
    assert program_of(Sampling(temperature=0.7, seed=3)) is Program.PLAIN


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_p=0.9),
        Sampling(top_k=40),
        Sampling(min_p=0.1),
        Sampling(temperature=0.0, repetition_penalty=1.1),
        Sampling(temperature=0.0, presence_penalty=0.5),
        Sampling(temperature=0.0, frequency_penalty=-0.5),
        Sampling(temperature=0.0, top_logprobs=0),
    ],
)
def test_everything_else_is_the_full_program(sampling: Sampling) -> None:
    assert program_of(sampling) is Program.FULL


def test_a_step_runs_the_smallest_program_that_covers_its_slots() -> None:
    assert smallest_covering([Program.GREEDY, Program.PLAIN]) is Program.PLAIN


def test_a_step_without_slots_is_greedy() -> None:
    assert smallest_covering([]) is Program.GREEDY
