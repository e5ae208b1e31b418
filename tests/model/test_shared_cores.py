"""Two who use the same cores in turns: one at a time, in the order of asking."""

from __future__ import annotations

import threading
import time

from zerolayer.model.shared_cores import SharedCores


def waits(turns: SharedCores, many: int) -> None:
    while turns.waiting != many:
        time.sleep(0.001)


def taker(turns: SharedCores, name: str, taken: list[str]) -> threading.Thread:
    def take() -> None:
        with turns:
            taken.append(name)

    thread = threading.Thread(target=take)
    thread.start()
    return thread


def test_whoever_asked_first_has_the_next_turn() -> None:
    turns, taken, threads = SharedCores(), [], []
    with turns:
        for place, name in enumerate("abc"):
            threads.append(taker(turns, name, taken))
            waits(turns, place + 1)
        assert taken == []
    for thread in threads:
        thread.join(5)
    assert taken == ["a", "b", "c"]


def test_in_the_middle_of_a_turn_whoever_waits_goes_first() -> None:
    turns, taken = SharedCores(), []
    with turns:
        thread = taker(turns, "waited", taken)
        waits(turns, 1)
        turns.pass_on()
        taken.append("passed on")
    thread.join(5)
    assert taken == ["waited", "passed on"]


def test_a_turn_ends_with_an_error_too() -> None:
    turns, taken = SharedCores(), []
    try:
        with turns:
            raise ValueError
    except ValueError:
        taker(turns, "next", taken).join(5)
    assert taken == ["next"]


def test_two_that_always_want_a_turn_alternate() -> None:
    turns, taken = SharedCores(), []

    def work(name: str) -> None:
        for _ in range(200):
            with turns:
                taken.append(name)
                if not turns.waiting:
                    time.sleep(0.0005)  # the other one asks meanwhile

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    both = "".join(taken).strip("ab"[0]) if taken[0] == taken[1] else "".join(taken)
    shared = both[: 2 * min(both.count("a"), both.count("b"))]
    assert "aaa" not in shared
    assert "bbb" not in shared
