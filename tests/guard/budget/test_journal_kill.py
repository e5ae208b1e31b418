"""A process that is killed loses no record that it wrote: kill -9, at a moment of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from zerolayer.guard.budget.journal import BudgetJournal

CHILD = """
import sys
from pathlib import Path
from zerolayer.guard.budget.budgets import Budgets, Size
from zerolayer.guard.budget.journal import BudgetJournal
from zerolayer.guard.identity import Identity, Quota
from zerolayer.guard.spent import Spent

journal = BudgetJournal(Path(sys.argv[1]), records=64)
key = Identity("a", b"k" * 16, quota=Quota(compute_us_per_day=10**12))
budgets = Budgets(lambda: 1_728_043_200_000_000, journal=journal, kept=journal.kept)
journal.states = budgets.states
while True:
    hold = budgets.reserve(key, Size(0), Size(0))
    hold.begin()
    hold.settle(Spent(0, 0, 0, 1))
    sys.stdout.write("x")
    sys.stdout.flush()
"""


def test_what_a_killed_process_wrote_is_there(tmp_path: Path) -> None:
    path, told = tmp_path / "log", 0
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.read(1) == b"x"
        time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        told += 1 + len(child.stdout.read())
        child.wait()
        child.stdout.close()
    journal = BudgetJournal(path)
    used = journal.kept[b"k" * 16].used_us
    journal.close()
    assert told <= used <= told + 5  # one a life may have been written and not told
