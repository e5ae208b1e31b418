"""How many threads work: what they get done decides, on scripted times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zerolayer.model._native import Crew

MS = 1_000_000
STRETCH = 100 * MS
SECOND = 1000 * MS

Cores = Callable[[int], float]  # what so many threads have of the cores together


class Script:
    """A crew and its clock; ``cores`` says what its threads would have at each moment."""

    def __init__(self, most: int) -> None:
        self.crew = Crew(most)
        self.now = 5 * SECOND

    def stretch(self, cores: Cores) -> int:
        """One stretch; returns how many threads worked in it."""
        worked = self.crew.threads
        self.now += STRETCH
        self.crew.look(self.now, STRETCH, int(cores(worked) * STRETCH))
        return worked

    def run(self, cores: Cores, milliseconds: int) -> list[int]:
        """Stretches for so long; returns how many threads worked in each."""
        end = self.now + milliseconds * MS
        worked = []
        while self.now < end:
            worked.append(self.stretch(cores))
        return worked


def quiet(threads: int) -> float:
    return 0.97 * threads


def waiting(threads: int) -> float:
    """Two programs beside two threads that wait for each other for long."""
    return {1: 0.55, 2: 0.3}[threads]


def together(threads: int) -> float:
    """Two programs beside two threads that have their halves of the cores at the same time."""
    return 0.5 * threads


@pytest.fixture
def script() -> Script:
    return Script(2)


def test_all_work_while_nothing_else_runs(script: Script) -> None:
    assert set(script.run(quiet, 10_000)) == {2}


def test_all_work_while_they_have_more_than_fewer_could_have(script: Script) -> None:
    assert set(script.run(together, 10_000)) == {2}


def test_fewer_work_within_two_stretches_of_a_poor_one(script: Script) -> None:
    script.run(quiet, 1000)
    assert script.run(waiting, 300) == [2, 1, 1]
    assert script.crew.steady == 1


def test_all_are_tried_for_one_stretch_a_second_while_that_is_worse(script: Script) -> None:
    script.run(waiting, 1000)
    assert script.run(waiting, 10_000).count(2) in (9, 10)


def test_all_work_again_a_second_after_the_others_have_ended(script: Script) -> None:
    script.run(waiting, 5000)
    assert set(script.run(quiet, 3000)[11:]) == {2}


def test_a_trial_does_not_count_as_steady(script: Script) -> None:
    script.stretch(waiting)
    assert (script.crew.threads, script.crew.steady) == (1, 2)


def test_fewer_that_are_no_better_are_tried_once_a_second(script: Script) -> None:
    def starved(_threads: int) -> float:
        return 0.3

    assert script.run(starved, 10_000).count(1) in (8, 9)
    assert script.crew.steady == 2


def test_fewer_that_are_hardly_better_are_not_kept(script: Script) -> None:
    def alike(threads: int) -> float:
        return {1: 0.51, 2: 0.5}[threads]

    script.run(alike, 10_000)
    assert script.crew.steady == 2


def test_more_must_be_clearly_better(script: Script) -> None:
    def alike(threads: int) -> float:
        return {1: 0.5, 2: 0.55}[threads]

    script.run(waiting, 500)
    script.run(alike, 5000)
    assert script.crew.steady == 1


def test_one_thread_is_never_tried_with_fewer() -> None:
    script = Script(1)
    assert set(script.run(lambda _threads: 0.1, 3000)) == {1}


def test_many_threads_find_the_number_that_has_cores() -> None:
    """On eight cores others take two: threads beyond six make all wait for half of the time."""

    def six_free(threads: int) -> float:
        return float(threads) if threads <= 6 else 0.5 * threads

    script = Script(8)
    script.run(six_free, 1000)
    assert script.crew.steady == 6


def test_one_more_is_tried_where_all_are_too_many() -> None:
    def free(cores: int) -> Cores:
        return lambda threads: float(threads) if threads <= cores else 0.5 * threads

    script = Script(8)
    script.run(free(6), 1000)
    script.run(free(7), 4000)
    assert script.crew.steady == 7


def test_cores_are_those_of_the_last_steady_stretch(script: Script) -> None:
    script.run(together, 500)
    assert script.crew.cores == pytest.approx(1.0)


def test_a_stretch_of_no_time_says_nothing(script: Script) -> None:
    script.crew.look(script.now, 0, 0)
    assert (script.crew.threads, script.crew.cores) == (2, 0.0)
