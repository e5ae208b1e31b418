"""Takeovers with the bundled model, and takeovers in which one of the two processes is killed at some moment."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from takeover.place import WAIT_S, Load, Place, end, stopped
from zerolayer.guard.ledger.annex import annexes

pytestmark = pytest.mark.judge

CHANCE = random.Random(20)


def test_three_versions_of_a_service_with_a_real_model_and_no_failed_request(tmp_path: Path) -> None:
    place = Place(tmp_path, engine="native", slots=4)
    try:
        process = place.serve()
        load = Load(place, retries=2)
        for _ in range(2):
            time.sleep(1)
            new = place.serve("--takeover")
            assert process.wait(WAIT_S) == 0
            process = new
        time.sleep(1)
        load.end()
        assert stopped(process) == 0
        assert load.failed == []
        assert len({record.request_id for record in place.records()}) == len(place.records()) == load.done > 0
    finally:
        end(place)


@pytest.mark.parametrize("delay_s", [CHANCE.uniform(0.3, 3.0) for _ in range(6)])
def test_when_the_new_process_is_killed_the_old_one_serves_and_every_record_is_there_once(
    tmp_path: Path, delay_s: float
) -> None:
    place = Place(tmp_path)
    try:
        old = place.serve()
        load = Load(place, retries=2)
        running = place.stream(1900)  # so that the old process still drains
        new = place.start("--takeover")
        time.sleep(delay_s)
        new.kill()
        new.wait()
        time.sleep(0.5)
        before = load.done
        time.sleep(0.5)
        assert load.done > before
        load.end()
        running.join()
        assert stopped(old) == 0
        assert annexes(place.ledger) == []
        names = [record.request_id for record in place.records()]
        # A stream of the process that was killed is cut, once it has begun; its record died with it.
        assert len(load.failed) <= 1
        assert len(set(names)) == len(names) == load.done + 1
    finally:
        end(place)


@pytest.mark.parametrize("drains_s", [0.0, 0.2, 1.0])
def test_when_the_old_process_is_killed_while_it_drains_the_new_one_serves_and_keeps_its_records(
    tmp_path: Path, drains_s: float
) -> None:
    place = Place(tmp_path)
    try:
        old = place.serve()
        long = place.stream(1900, may_break=True)
        assert place.post(3)[0] == 200
        new = place.serve("--takeover")
        time.sleep(drains_s)
        old.kill()
        old.wait()
        long.join()
        assert place.post(4)[0] == 200
        assert stopped(new) == 0
        assert annexes(place.ledger) == []
        assert len(place.records()) == 2  # the stream had not ended
    finally:
        end(place)
