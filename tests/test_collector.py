"""Garbage is collected when the loop says so, and by the interpreter only where the loop does not come to it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from zerolayer.model.letters import StepReport
from zerolayer.serve.collector import Collector
from zerolayer.serve.room import Reports


class Clock:
    now = 0
    took = 0  # by every second look: a collection lies between two

    def __call__(self) -> int:
        self.now += self.took
        return self.now


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.self = self


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def collector(clock: Clock) -> Iterator[Collector]:
    was = gc.get_threshold()
    gc.collect()
    gc.set_threshold(100, 2, 2)
    collector = Collector(clock)
    collector.start()
    yield collector
    collector.stop()
    gc.set_threshold(*was)


@pytest.fixture
def generations() -> Iterator[list[int]]:
    """Of the collections, as they come."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def rounds(collector: Collector, count: int) -> None:
    for _ in range(count):
        kept = [[] for _ in range(200)]
        collector.look()
        del kept


def test_nothing_is_collected_between_two_looks(collector: Collector, generations: list[int]) -> None:
    kept = [[] for _ in range(1000)]  # ten times what the interpreter would have waited for
    assert (generations, len(kept)) == ([], 1000)


def test_a_look_finds_what_holds_itself(collector: Collector) -> None:
    knot = weakref.ref(Knot())
    rounds(collector, 1)
    assert knot() is None


def test_a_look_at_few_new_objects_does_nothing(collector: Collector, generations: list[int]) -> None:
    collector.look()
    assert generations == []


def test_old_objects_are_looked_at_as_seldom_as_the_interpreter_does(
    collector: Collector, generations: list[int]
) -> None:
    rounds(collector, 9)
    assert generations == [0, 0, 1, 0, 0, 1, 0, 0, 2]


def test_full_collections_take_half_a_per_cent_of_the_time_at_most(
    collector: Collector, clock: Clock, generations: list[int]
) -> None:
    clock.took = 1000
    rounds(collector, 9)
    clock.took = 0
    rounds(collector, 30)
    assert generations.count(2) == 1
    clock.now += 200 * 1000
    rounds(collector, 3)
    assert generations.count(2) == 2


def test_the_interpreter_collects_by_itself_where_nobody_looks(collector: Collector, generations: list[int]) -> None:
    kept = [[] for _ in range(4000)]
    assert (generations, len(kept)) == ([0], 4000)


def test_a_collector_that_was_stopped_leaves_all_as_it_was(collector: Collector) -> None:
    collector.stop()
    collector.stop()
    assert gc.get_threshold() == (100, 2, 2)


def test_a_collector_that_was_not_started_changes_nothing(clock: Clock, generations: list[int]) -> None:
    usual = gc.get_threshold()
    idle = Collector(clock)
    gc.collect(0)
    generations.clear()
    kept = [[] for _ in range(usual[0] // 2)]
    idle.look()
    assert (gc.get_threshold(), generations, len(kept)) == (usual, [], usual[0] // 2)


def test_the_loop_looks_when_it_has_taken_all_reports_that_are_there() -> None:
    seen: list[int | str] = []

    async def taken() -> None:
        looked = asyncio.Event()

        def look() -> None:
            seen.append("look")
            looked.set()

        reports = Reports(asyncio.get_running_loop(), look)
        reports.take = lambda report: seen.append(report.ended_ns)
        reports.listen()
        for ended_ns in range(2, 70):  # more than it takes in one turn
            reports.put(StepReport(1, ended_ns, "greedy"))
        reports.bell.ring()
        await asyncio.wait_for(looked.wait(), 10)
        reports.close()

    asyncio.run(taken())
    assert seen == [*range(2, 70), "look"]
