"""Processes that file requests until they are killed at a random line of the code that does so.

    python tests/judges/dying_writer.py FOLDER TRIALS

Every trial is a fork with a ledger and a budget log of its own, in segments and logs so small that new ones begin all
the time. A trace function counts the lines that run and kills the process (SIGKILL, to itself) at one of them. A
request is *told* through a pipe as soon as it is filed, where a server would write its last bytes. Prints a JSON line
a trial: how many were told, what the ledger and the log have of them afterwards, and whether its chain holds.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from zerolayer.front.receipt import Books, Receipt
from zerolayer.guard.budget.budgets import Budgets, Size
from zerolayer.guard.budget.journal import BudgetJournal
from zerolayer.guard.identity import Identity, Quota
from zerolayer.guard.ledger.audit import Audit
from zerolayer.guard.ledger.ledger import Ledger, Rules
from zerolayer.guard.ledger.record import RECORD_BYTES, Entry, Outcome
from zerolayer.guard.ledger.segment import Chain
from zerolayer.guard.spent import Spent
from zerolayer.observe.compute import ComputeMeter
from zerolayer.observe.stages import StageClock

REQUESTS = 12
KEY = Identity("bank", b"k" * 16, quota=Quota(requests_per_minute=1000, compute_us_per_day=10**9))
RULES = Rules(segment_bytes=6 * RECORD_BYTES, extent_bytes=4096)


class Answer:
    """An answer that took a microsecond of compute."""

    compute_ns = 1000

    def spent(self) -> Spent:
        return Spent(5, 3, 0, 1)


def serve(folder: Path, told: int, die_at: int) -> int:
    """File ``REQUESTS`` requests; the number of lines that ran, unless it dies before the end."""
    lines = 0

    def line(_frame: FrameType, event: str, _argument: object) -> object:
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return line

    ledger = Ledger(folder / "ledger", time.time, RULES)
    journal = BudgetJournal(folder / "budgets", records=8)
    budgets = Budgets(lambda: 1_728_043_200_000_000, journal=journal, kept=journal.kept)
    journal.states = budgets.states
    books = Books(ledger, "model", Audit(), ComputeMeter(1, 1, 0))
    sys.settrace(line)
    for number in range(REQUESTS):
        receipt, answer = Receipt(b"completions"), Answer()
        hold = budgets.reserve(KEY, Size(8, 1), Size(20, 5))
        hold.tighten(Size(8, 1))
        hold.begin()
        receipt.began(answer, 3, 1000)
        receipt.finished("stop")
        hold.settle(answer.spent())
        books.file(receipt, KEY, f"request-{number}", 200, StageClock(0), streamed=True)
        os.write(told, b"x")
    sys.settrace(None)
    return lines


def trial(folder: Path, die_at: int) -> dict[str, object]:
    """One process's death, and what it left."""
    folder.mkdir()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        serve(folder, write, die_at)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = len(pipe.read())
    died = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    Ledger(folder / "ledger", time.time, RULES).close()  # the next server: it goes on where this one stopped
    chain = Chain(folder / "ledger")
    entries = [record for link in chain if isinstance(record := link.record(), Entry)]
    journal = BudgetJournal(folder / "budgets")
    state = journal.kept.get(KEY.key_id)
    journal.close()
    names = [entry.request_id.decode() for entry in entries if entry.outcome == Outcome.FINISHED]
    return {"told": told, "died": died, "recorded": names, "used_us": state.used_us if state else 0}


def main() -> None:
    folder, trials = Path(sys.argv[1]), int(sys.argv[2])
    first = folder / "first"
    first.mkdir()
    read, write = os.pipe()
    lines = serve(first, write, die_at=0)
    chance = random.Random(8)
    for number in range(trials):
        place = folder / str(number)
        print(json.dumps(trial(place, chance.randint(1, lines))), flush=True)
        shutil.rmtree(place)
    os.close(read)
    os.close(write)


if __name__ == "__main__":
    main()
