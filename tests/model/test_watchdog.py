"""The watchdog's decisions, with a clock of our own: times are milliseconds after the first look."""

from __future__ import annotations

from collections.abc import Sequence

from zerolayer.model.watchdog import Verdict, Watchdog

MS = 1_000_000
START = 1_000_000 * MS  # of the first look, on a clock that has run for a while
FINE, STALLED, RECOVERED, LOST = Verdict.FINE, Verdict.STALLED, Verdict.RECOVERED, Verdict.LOST


def verdicts(*looks: tuple[int, int | None], bound_ms: int = 1, lost_ms: int = 10_000) -> list[Verdict]:
    """A look at each (time, when the running step began)."""
    watchdog = Watchdog(lambda: bound_ms * MS, lost_ns=lost_ms * MS)
    watchdog.look(START, 0)
    return [watchdog.look(START + now * MS, 0 if step is None else START + step * MS) for now, step in looks]


def every(period: int, until: int, step: int) -> Sequence[tuple[int, int]]:
    return [(now, step) for now in range(period, until + 1, period)]


def test_steps_that_come_and_go_are_fine() -> None:
    assert verdicts((250, 249), (500, 500), (750, None), (1000, 998)) == [FINE] * 4


def test_a_short_step_that_runs_for_a_quarter_of_a_second_is_stalled() -> None:
    assert verdicts((100, 0), (200, 0), (300, 0)) == [FINE, FINE, STALLED]


def test_a_stall_is_noticed_within_a_second_of_its_beginning() -> None:
    found = verdicts(*every(250, 1000, 1))
    assert STALLED in found


def test_a_long_step_has_twenty_times_its_bound() -> None:
    found = verdicts(*every(250, 2250, 0), bound_ms=100)
    assert found[:8] == [FINE] * 7 + [STALLED]


def test_a_stall_is_said_once() -> None:
    assert verdicts(*every(250, 1500, 0)).count(STALLED) == 1


def test_a_step_that_ends_after_all_recovers() -> None:
    assert verdicts((250, 0), (500, 0), (750, 0), (1000, None), (1250, None))[2:] == [STALLED, RECOVERED, FINE]


def test_the_next_step_is_a_recovery_too() -> None:
    assert verdicts((250, 0), (500, 0), (750, 0), (1000, 990))[2:] == [STALLED, RECOVERED]


def test_a_step_that_never_ends_is_lost_and_stays_so() -> None:
    found = verdicts(*every(250, 3000, 0), lost_ms=2000)
    assert found[-1] is LOST
    assert found.index(LOST) * 250 >= 2000


def test_a_second_stall_is_noticed_like_the_first() -> None:
    looks = [*every(250, 750, 0), (1000, None), *((now, 1010) for now in (1250, 1500, 1750))]
    assert [verdict for verdict in verdicts(*looks) if verdict is not FINE] == [STALLED, RECOVERED, STALLED]


def test_a_process_that_was_stopped_for_an_hour_is_not_taken_for_stalled() -> None:
    assert verdicts((100, 90), (3_600_100, 90), (3_600_350, None)) == [FINE] * 3


def test_an_hour_without_looks_before_the_step_does_not_age_it() -> None:
    assert verdicts((3_600_000, 3_599_999)) == [FINE]


def test_stalled_tells_the_state_between_looks() -> None:
    watchdog = Watchdog(lambda: MS)
    watchdog.look(START, 0)
    for now in (250, 500, 750):
        watchdog.look(START + now * MS, START)
    assert watchdog.stalled
    watchdog.look(START + 1000 * MS, 0)
    assert not watchdog.stalled
