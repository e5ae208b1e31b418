"""What the next step carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.model.program import FULL, GREEDY, PLAIN, Programs
from zerolayer.model.rows import Rows


@pytest.fixture
def rows() -> Rows:
    return Rows(Programs())


def test_prompts_are_read_one_after_the_other_and_then_decode(rows: Rows) -> None:
    rows.open(3, GREEDY)
    rows.open(1, GREEDY)
    seen = [(rows.reads, rows.decode)]
    for _ in range(2):
        rows.read()
        seen.append((rows.reads, rows.decode))
    assert seen == [(3, ()), (1, (3,)), (-1, (3, 1))]


def test_what_is_apart_is_open_and_in_nobody_elses_step(rows: Rows) -> None:
    rows.open(4, GREEDY, apart=True)
    assert (4 in rows, len(rows), rows.reads, rows.decode) == (True, 1, -1, ())


def test_a_slot_that_is_dropped_is_nowhere_whether_it_was_read_or_decoded(rows: Rows) -> None:
    rows.open(0, GREEDY, scored=True)
    rows.read()
    rows.open(1, GREEDY, scored=True)
    rows.drop(0)
    rows.drop(1)
    assert (list(rows), rows.reads, rows.decode, rows.scored(0), rows.scored(1)) == ([], -1, (), False, False)


def test_steps_that_carry_the_same_slots_are_given_the_same_object(rows: Rows) -> None:
    rows.open(0, GREEDY)
    rows.read()
    decode = rows.decode
    rows.open(1, GREEDY)
    assert rows.decode is decode
    rows.read()
    assert rows.decode == (0, 1)


def test_the_program_covers_whose_prompt_is_read_only_while_it_is(rows: Rows) -> None:
    rows.open(0, GREEDY)
    rows.read()
    rows.open(1, FULL)
    assert (rows.program(1), rows.program(-1)) == (FULL, GREEDY)


@given(
    st.lists(st.tuples(st.sampled_from(["open", "read", "drop"]), st.sampled_from([GREEDY, PLAIN, FULL])), max_size=40)
)
def test_whatever_happens_the_program_is_that_of_the_slots_that_decode(happens: list[tuple[str, str]]) -> None:
    programs = Programs()
    rows, free, needs = Rows(programs), list(range(6)), dict[int, str]()
    for what, program in happens:
        if what == "open" and free:
            slot = free.pop()
            needs[slot] = program
            rows.open(slot, program)
        elif what == "read" and rows.reads >= 0:
            rows.read()
        elif what == "drop" and needs:
            slot = next(iter(needs))
            del needs[slot]
            rows.drop(slot)
            free.append(slot)
        assert rows.program(-1) == programs.covering(needs[slot] for slot in rows.decode)
