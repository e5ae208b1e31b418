"""Whether threads spin for each other or sleep at once, on scripted times."""

from __future__ import annotations

import pytest

from zerolayer.model._native import Patience

MS = 1_000_000
WINDOW = 20 * MS
THREADS = 2


class Script:
    """Windows of 20 ms; ``slept`` is the share of them that the threads slept after spinning in vain."""

    def __init__(self) -> None:
        self.patience = Patience()
        self.now = 0

    def window(self, slept: float) -> bool:
        """One window; returns whether the threads spin in the next one."""
        self.now += WINDOW
        self.patience.look(self.now, WINDOW, int(slept * THREADS * WINDOW), THREADS)
        return self.patience.spins

    def spell(self) -> bool:
        """As many windows of much sleep as it takes."""
        return [self.window(0.4) for _ in range(10)][-1]

    def until_spinning(self) -> int:
        """Milliseconds until they spin again."""
        begun = self.now
        while not self.window(0.4):
            pass
        return (self.now - begun) // MS


@pytest.fixture
def script() -> Script:
    return Script()


def test_they_spin_while_they_hardly_sleep(script: Script) -> None:
    assert all(script.window(0.1) for _ in range(100))


def test_ten_windows_of_much_sleep_in_a_row_end_the_spinning(script: Script) -> None:
    assert [script.window(0.4) for _ in range(10)] == [True] * 9 + [False]


def test_a_hypervisor_that_takes_a_core_now_and_then_does_not(script: Script) -> None:
    assert all(all(script.window(0.4) for _ in range(9)) and script.window(0.1) for _ in range(50))


def test_one_window_is_enough_where_other_programs_are_known_of(script: Script) -> None:
    script.spell()
    script.until_spinning()
    assert not script.window(0.4)


def test_one_pause_of_another_program_does_not(script: Script) -> None:
    assert script.window(4 * MS / (THREADS * WINDOW))


def test_what_they_sleep_instead_of_spinning_says_nothing(script: Script) -> None:
    script.spell()
    assert not script.window(0.0)


def test_spinning_is_tried_after_twice_as_long_each_time_up_to_a_limit(script: Script) -> None:
    script.spell()
    tried = [script.until_spinning()]
    for _ in range(5):
        script.window(0.4)
        tried.append(script.until_spinning())
    assert tried == [100, 200, 400, 800, 800, 800]


def test_after_a_good_trial_the_next_spell_begins_as_the_first_did(script: Script) -> None:
    for _ in range(3):
        script.spell()
        script.until_spinning()
    script.window(0.0)
    script.spell()
    assert script.until_spinning() == 100


def test_the_cores_count_as_shared_until_a_trial_was_good(script: Script) -> None:
    assert not script.patience.crowded
    script.spell()
    script.until_spinning()
    assert script.patience.crowded
    script.window(0.0)
    assert not script.patience.crowded
