"""Memory by component: what is measured, what is not, and what it costs to look."""

from __future__ import annotations

import sys
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.observe.memory import Component, GlueMemory

HERE = (__name__,)


class Mine:
    def __init__(self, *held: object) -> None:
        self.held = held


def measured(*roots: object, lasting: bool = False) -> int:
    return GlueMemory([Component("a", roots, HERE, lasting)]).measure()["a"]


def test_what_a_component_holds_is_counted_with_what_that_holds():
    text = "x" * 10_000
    assert measured(Mine([text])) >= sys.getsizeof(text)


def test_what_belongs_to_another_room_is_not_counted():
    class Foreign:
        def __init__(self) -> None:
            self.text = "x" * 10_000

    Foreign.__module__ = "elsewhere"
    assert measured(Mine(Foreign())) < 1_000


def test_what_two_components_reach_counts_once():
    shared = Mine("x" * 10_000)
    memory = GlueMemory([Component(name, (shared,), HERE) for name in ("first", "second")])
    assert memory.measure()["first"] > 10_000
    assert memory.measure()["second"] == 0


@given(st.integers(20, 3000))
def test_of_many_members_a_few_count_for_all(count):
    one = sys.getsizeof(b"") + 500
    held = measured({number: bytes([number % 256]) * 500 for number in range(count)})
    assert 0.8 * count * one < held < 1.5 * count * (one + 200)


def test_what_all_members_share_is_not_multiplied():
    shared = "x" * 100_000
    assert measured([Mine(shared) for _ in range(1000)]) < 100_000 + 1000 * 1000


@pytest.mark.parametrize("change", ["append", "clear"])
def test_what_another_thread_changes_meanwhile_is_no_failure(change):
    class Changing(Mine):
        def __sizeof__(self) -> int:
            members.append(None) if change == "append" else members.clear()
            return 1

    members = deque(Changing() for _ in range(20))
    assert measured(members) > 0


def test_a_walk_ends_whatever_there_is_to_see():
    ring: list[object] = []
    for _ in range(5000):
        ring = [ring]
    tree = Mine(*[Mine(*[Mine(*range(10)) for _ in range(10)]) for _ in range(10)])
    assert measured(ring, tree) > 0


def test_what_lasts_is_measured_at_the_start():
    held: list[object] = []
    memory = GlueMemory([Component("a", (held,), HERE, lasting=True)])
    before = memory.measure()
    held.append("x" * 10_000)
    assert memory.measure() == before
