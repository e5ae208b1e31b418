"""Which program serves which sampling parameters."""

from __future__ import annotations

import pytest

from zerolayer.model.program import FULL, GREEDY, PLAIN, Named, Programs
from zerolayer.wire.schema import Sampling

CHAT = Named("chat", temperature=0.7, top_p=0.9, top_k=0, repetition_penalty=1.0)


@pytest.fixture
def programs() -> Programs:
    return Programs([CHAT])


def test_temperature_zero_is_the_greedy_program(programs: Programs) -> None:
    assert programs.of(Sampling(temperature=0.0)) == GREEDY


def test_truncation_does_not_matter_to_greedy(programs: Programs) -> None:
    assert programs.of(Sampling(temperature=0.0, top_k=5, top_p=0.5)) == GREEDY


def test_temperature_alone_is_the_plain_program(programs: Programs) -> None:
    assert programs.of(Sampling(temperature=0.7, seed=3)) == PLAIN


def test_exactly_a_named_set_is_the_named_program(programs: Programs) -> None:
    assert programs.of(Sampling(temperature=0.7, top_p=0.9, seed=5)) == "chat"


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
        Sampling(temperature=0.7, top_p=0.9, top_k=1),
        Sampling(temperature=0.7, top_p=0.9, min_p=0.1),
        Sampling(temperature=0.7, top_p=0.9, top_logprobs=1),
    ],
)
def test_everything_else_is_the_full_program(programs: Programs, sampling: Sampling) -> None:
    assert programs.of(sampling) == FULL


def test_slots_of_one_program_run_it(programs: Programs) -> None:
    assert programs.covering(["chat", "chat"]) == "chat"


def test_plain_covers_greedy(programs: Programs) -> None:
    assert programs.covering([GREEDY, PLAIN]) == PLAIN


def test_a_mixture_that_no_other_covers_runs_the_fallback(programs: Programs) -> None:
    assert programs.covering(["chat", GREEDY]) == FULL


def test_a_step_without_slots_is_greedy(programs: Programs) -> None:
    assert programs.covering([]) == GREEDY


def test_a_dropped_program_is_replaced_by_the_fallback(programs: Programs) -> None:
    programs.drop(PLAIN)
    assert programs.of(Sampling()) == FULL
    assert programs.covering([GREEDY, PLAIN]) == FULL


def test_the_fallback_cannot_be_dropped(programs: Programs) -> None:
    programs.drop(FULL)
    assert FULL in programs.names


def test_every_program_serves_its_own_parameters(programs: Programs) -> None:
    assert all(programs.of(programs.sampling(name)) == name for name in programs.names)
