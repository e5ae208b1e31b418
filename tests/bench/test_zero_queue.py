"""The zero-queue bench tells each figure beside its limit, and of everybody who was late or strayed the cause."""

from __future__ import annotations

import pytest
from lean_client import Record
from queue_causes import Steps, late, over_bound, strayed
from queue_figures import CONTROL, HALVED, OF_CAPACITY, OWN, STOLEN, Alone, beside, figures, verdicts
from queue_pulses import Pulses
from queue_rounds import Rounds

MS = 1_000_000
GRACE_MS = 250.0
STEPS = """\
     ago_s   took_us  bound_us decode prefill program      causes
     3.000     50000     20000     16       0 greedy       over bound, steal 30 ms in 40 ms
     2.000     19000     20000     16       0 greedy
     1.500     25000     20000     16       0 greedy       over bound
     0.500     90000     20000     16       0 greedy       over bound, garbage collection 800 us
"""


def served(sent_ns: int, end_ns: int, **given: object) -> Record:
    return Record(sent_ns, sent_ns=sent_ns, end_ns=end_ns, status=200, last_sent_ns=sent_ns, **given)


def came_back(told_ms: float, after_ms: float, *, woken_ms: float = 0.0, status: int = 200) -> Record:
    """Refused at 0 and told to come after ``told_ms``; sent ``after_ms`` later, by a client that woke ``woken_ms``."""
    sent = int((told_ms + after_ms) * MS) + 1
    record = Record(1, sent_ns=1, end_ns=sent + MS, status=status, last_sent_ns=sent, attempts=[(1, 1, told_ms)])
    record.starts[sent] = (int(told_ms * MS) + 1, int((told_ms + woken_ms) * MS) + 1)
    return record


def test_only_steps_over_their_bound_while_a_request_ran_are_its_causes() -> None:
    now = 10_000 * MS
    found = over_bound(STEPS, now, now - 1_800 * MS, now - 450 * MS)
    assert found == [
        "a step took 25.0 ms instead of 20.0 ms (nothing else was seen)",
        "a step took 90.0 ms instead of 20.0 ms (garbage collection 800 us)",
    ]
    assert over_bound(STEPS, now, now - 2_000 * MS, now - 1_900 * MS) == []


def test_whoever_is_late_is_told_with_its_time() -> None:
    records = [served(0, 5 * MS), Record(0, sent_ns=0, end_ns=7 * MS, status=504, last_sent_ns=2 * MS)]
    assert list(late(records, Steps(None))) == ["late after 5 ms: the server was not asked for its steps"]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (came_back(100.0, 251.0, woken_ms=250.5), "+251.0 ms from its time, served all the same: the client was woken"),
        (came_back(100.0, 251.0, woken_ms=0.2), "+251.0 ms from its time, served all the same: the client was busy"),
        (came_back(100.0, -6.0, status=429), "-6.0 ms from its time, not served (429): the client was busy"),
        (came_back(100.0, 3.0, status=429), "in its window and not served: +3.0 ms, then 429"),
    ],
)
def test_whoever_strays_is_told_with_the_cause(record, told) -> None:
    (line,) = strayed([record], GRACE_MS)
    assert line.startswith(told)


def test_whoever_comes_in_its_window_and_is_served_needs_no_cause() -> None:
    assert list(strayed([came_back(100.0, 3.0), served(0, MS)], GRACE_MS)) == []


def _row(server: str, run: str, records: list[Record]) -> dict[str, object]:
    alone = Alone(idle=10.0, first=1.0, beside=20.0, slower=2.0, capacity=100.0)
    pulses = Pulses()
    pulses.add(lambda: records)
    return {"server": server, "run": run} | figures(records, alone, GRACE_MS) | pulses.figures(alone.first)


def test_each_figure_stands_beside_its_limit_and_whether_it_was_met() -> None:
    quick, slow = [served(0, 10 * MS), served(0, 11 * MS)], [served(0, 10 * MS), served(0, 100 * MS)]
    for records, met in ((quick, "met"), (slow, "MISSED")):
        judged = verdicts([_row(OWN, "pulses of 64", records)], 16)
        found = {each["figure"].partition(": ")[2]: each for each in judged}
        figure = found["P99/P50 of those admitted at once, median of the pulses"]
        assert (figure["limit"], figure["met"]) == ("at most 1.3", met)


def test_a_machine_of_half_the_speed_is_judged_on_its_promises_only() -> None:
    row = _row(HALVED, "pulses of 64", [served(0, 10 * MS), served(0, 100 * MS)])
    assert {each["figure"].rpartition(": ")[2] for each in verdicts([row], 16)} == {
        "first tokens after their promised time",
        "admitted requests that ended late, of all",
    }


def test_a_pulse_on_a_slower_machine_is_judged_by_itself() -> None:
    """Each of these pulses has a P99/P50 of 1.1, all together of 2.2."""
    pulses = Pulses()
    for speed in (1, 2, 1):
        ends = [10 * MS * speed] * 9 + [11 * MS * speed]
        pulses.add(lambda ends=ends: [served(0, end) for end in ends])
    found = pulses.figures(1.0)
    assert found["P99/P50 of each pulse"] == [pytest.approx(1.091, abs=0.001)] * 3
    assert found["P99/P50 within a pulse"] < 1.1
    assert found["spread"] == 2.0


def test_each_round_is_judged_by_what_the_machine_could_do_just_then() -> None:
    """From 30 to 70 ms four end where 100 a second are possible, and two where 50 are."""
    rounds = Rounds()
    for capacity, ends in ((100.0, (30, 40, 50, 60, 70)), (50.0, (40, 60, 90))):
        records = [Record(0, sent_ns=0, end_ns=end * MS, status=200, last_sent_ns=0) for end in ends]
        records.append(Record(70 * MS, sent_ns=70 * MS, end_ns=71 * MS, status=429))
        rounds.add(records, Alone(beside=30.0, capacity=capacity), stolen_ms=10)
    found = rounds.figures()
    assert (found[f"{OF_CAPACITY}, each round"], found[OF_CAPACITY], found[STOLEN]) == ([1.0, 1.0], 1.0, 20)


def _refused(took_ms: int) -> list[Record]:
    return [Record(0, sent_ns=0, end_ns=took_ms * MS, status=429, attempts=[(0, took_ms * MS, -1.0)])]


def test_refusals_stand_beside_the_control_of_the_same_pulse() -> None:
    """The machine has slow seconds: the median of the differences is 1 ms, that of the slowest ones 3 ms."""
    own, stub = Pulses(), Pulses()
    for own_ms, stub_ms in ((4, 3), (9, 4), (7, 6)):
        stub.add(lambda took=stub_ms: _refused(took))
        own.add(lambda took=own_ms: _refused(took))
    assert own.beside(stub) == {
        "refusal p99 of each pulse and its control's, ms": ["4.00 / 3.00", "9.00 / 4.00", "7.00 / 6.00"],
        "refusal p99 over its control's, median of the pulses, ms": 1.0,
    }


def test_refusals_are_held_to_the_quicker_control() -> None:
    rows = [_row(OWN, "pulses of 64", [served(0, MS), *_refused(9)])]
    rows += [_row(CONTROL, "pulses of 64", _refused(8)), _row(CONTROL, "beside a busy engine", _refused(5))]
    (figure,) = [each for each in verdicts(rows, 16) if "over the control" in each["figure"]]
    assert (figure["measured"], figure["met"]) == (4.0, "MISSED")


def test_another_server_stands_beside_the_same_run_of_ours() -> None:
    rows = [_row(OWN, "poisson 0.5", [served(0, 10 * MS)]), _row("other", "poisson 0.5", [served(0, 30 * MS)])]
    found = {each["run"]: each for each in beside(rows)}
    median = found["poisson 0.5: E2E p50 ms"]
    assert (median["ours"], median["theirs"], median["of"]) == (10.0, 30.0, "other")
