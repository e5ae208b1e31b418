"""The machine on paper: what is measured on it depends on nothing but the server."""

from __future__ import annotations

from functools import partial

import numpy as np

from check.conftest import measure_scripted
from check.disease_server import Server, handle
from check.scripted import Machine
from zerolayer.check.run_file import COLUMNS


def test_two_runs_are_the_same_to_the_microsecond() -> None:
    first, second = measure_scripted("sharing"), measure_scripted("sharing")
    assert all(np.array_equal(getattr(first, name), getattr(second, name)) for name in COLUMNS)


def test_a_client_on_it_is_never_late() -> None:
    run = measure_scripted("fifo")
    assert (run.sent - run.intended).max() < 200
    assert run.lag.max() < 200


def test_time_goes_by_only_while_all_wait() -> None:
    machine = Machine(lambda: partial(handle, Server("healthy")))
    before = machine.clock()
    sum(range(100_000))
    assert machine.clock() == before
    machine.sleep(3600)
    assert machine.clock() - before == 3600 * 10**9
    machine.close()
