"""The figures of ``bench/failover.py``, from calls that a test made up, and their picture."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree as ET

import pytest
from failover_load import AFTER_S, SETTLE_S, Run
from failover_picture import Cell, timeline


def run(share: float = 0.75, *, lasts: bool = False, rates: tuple[int, int, int] = (100, 100, 100)) -> Run:
    """A fault at 7 s; so many answers a second before, in the second after it, and later."""
    made = Run("zerolayer", "kill", real=False, share=share, lasts=lasts, deadline_ms=3000)
    made.over_s = made.fault_s + (1.0 if lasts else 0.0)
    made.end_s = made.over_s + AFTER_S
    periods = ((0.0, made.fault_s), (made.fault_s, made.fault_s + 1), (made.fault_s + 1, made.end_s))
    for rate, (begin_s, end_s) in zip(rates, periods, strict=True):
        made.ends += (
            [(begin_s + (at + 0.5) / rate, "ok") for at in range(int((end_s - begin_s) * rate))] if rate else []
        )
    made.answered = made.executed = len(made.ends)
    return made


def test_what_is_kept_is_the_rate_long_after_the_fault_against_that_before() -> None:
    row = run(rates=(100, 10, 80)).row()
    assert row["kept"] == pytest.approx(0.8)
    assert row["kept_wanted"] == pytest.approx(0.70)


def test_of_a_fault_that_lasts_it_is_the_rate_meanwhile() -> None:
    assert run(lasts=True, rates=(100, 10, 80)).row()["kept"] == pytest.approx(0.1)


def test_of_real_nodes_it_is_measured_against_the_survivor_alone() -> None:
    made = run(1.0, rates=(100, 50, 50))
    made.own_req_s = 50.0
    assert made.row()["kept"] == pytest.approx(1.0)


def test_recovery_is_when_what_is_to_be_kept_is_there_again() -> None:
    assert run(rates=(100, 0, 80)).row()["recovery_s"] == pytest.approx(1.0, abs=0.11)
    assert run(rates=(100, 0, 60)).row()["recovery_s"] is None
    assert run(rates=(100, 80, 80)).row()["recovery_s"] == 0.0


def test_what_was_executed_and_nobody_knows_of_is_executed_twice_unnoticed() -> None:
    made = run()
    made.executed += 7
    made.unanswered, made.lost = 3, 1
    assert made.row()["twice_unnoticed"] == 3


def test_an_answer_with_another_text_is_wrong_and_no_answer() -> None:
    made = run()
    made.ends.append((SETTLE_S + 1, "wrong"))
    assert (made.row()["wrong"], made.row()["ok"]) == (1, len(made.ends) - 1)


def test_the_picture_has_a_bar_for_each_outcome_and_says_what_it_shows() -> None:
    bins = [Counter(ok=9), Counter(ok=3, cut=4), Counter(failed=1)] * 20
    rows = {"kill <one>\nof four": {"zerolayer": Cell(bins, 1.0, 2.0, "20 failed"), "nginx": Cell(bins, 1.0, 1.0, "")}}
    root = ET.fromstring(timeline(rows, ("zerolayer", "nginx"), 0.2, "Calls"))
    inside = "{http://www.w3.org/2000/svg}"
    kinds = Counter(each.get("class") for each in root.iter(f"{inside}rect"))
    assert kinds == {"ok": 81, "cut": 41, "failed": 41}  # one of each is the legend's
    texts = [each.text for each in root.iter(f"{inside}text")]
    assert {"Calls", "kill <one>", "of four", "20 failed", "zerolayer", "nginx"} <= set(texts)
    assert sum(each.get("class") == "fault" for each in root.iter(f"{inside}line")) == 3
