"""Why somebody was late, or came at another time than it was told: one line each, for the zero-queue bench."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lean_client import Record
from queue_figures import EARLY_MS, began_ns, is_late, returns

_WRITTEN_S = 0.5  # until a server has written its steps down, after it was asked
_WOKEN_MS = 1.0  # a client that is woken this long after its time was not given a core


class Steps:
    """The steps of a server of ours (``pid``) while somebody was late: it is asked as soon as that is seen.

    ``seen`` is what a ``LoadLoop`` calls with every record that has ended.
    """

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._readers: list[threading.Thread] = []
        self._causes: dict[int, list[str]] = {}

    def seen(self, record: Record) -> None:
        """Take a picture of the last 1,000 steps if this one was late. Costs others a signal."""
        if self._pid is not None and is_late(record):
            asked_ns = time.monotonic_ns()
            os.kill(self._pid, signal.SIGUSR1)
            reader = threading.Thread(target=self._read, args=(record, asked_ns))
            reader.start()
            self._readers.append(reader)

    def cause(self, record: Record) -> str:
        """Of one that was late."""
        for reader in self._readers:
            reader.join()
        if id(record) not in self._causes:
            return "the server was not asked for its steps"
        return "; ".join(self._causes[id(record)]) or "no step was over its bound: the promise was too tight"

    def _read(self, record: Record, asked_ns: int) -> None:
        time.sleep(_WRITTEN_S)
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
        text = (state / "zerolayer" / f"steps-{self._pid}.txt").read_text()
        self._causes[id(record)] = over_bound(text, asked_ns, began_ns(record), record.end_ns)


def over_bound(text: str, asked_ns: int, from_ns: int, until_ns: int) -> list[str]:
    """Of the steps in ``text``, written at ``asked_ns``, those that were over their bound while a request ran."""
    found = []
    for line in text.splitlines()[1:]:
        ago_s, took_us, bound_us = line.split()[:3]
        began_ns = asked_ns - int(float(ago_s) * 1e9)
        if "over bound" in line and began_ns <= until_ns and began_ns + int(took_us) * 1000 >= from_ns:
            causes = line.partition("over bound")[2].strip(", ") or "nothing else was seen"
            took_ms, bound_ms = int(took_us) / 1000, int(bound_us) / 1000
            found.append(f"a step took {took_ms:.1f} ms instead of {bound_ms:.1f} ms ({causes})")
    return found


def late(records: Sequence[Record], steps: Steps) -> Iterator[str]:
    """Admitted requests that were not complete at their deadline."""
    for record in records:
        if is_late(record):
            took_ms = (record.end_ns - began_ns(record)) / 1e6
            yield f"late after {took_ms:.0f} ms: {steps.cause(record)}"


def strayed(records: Sequence[Record], grace_ms: float) -> Iterator[str]:
    """Retries that came outside of their window, and those inside that were not served."""
    for record, sent_ns, late_ms, served in returns(records):
        inside = -EARLY_MS <= late_ms <= grace_ms
        if inside and served:
            continue
        if inside:
            yield f"in its window and not served: {late_ms:+.1f} ms, then {record.status} {record.error}".rstrip()
            continue
        fate = "served all the same" if served else f"not served ({record.status} {record.error})".replace(" )", ")")
        due_ns, woken_ns = record.starts.get(sent_ns, (sent_ns, sent_ns))
        woken_ms, busy_ms = (woken_ns - due_ns) / 1e6, (sent_ns - woken_ns) / 1e6
        reason = f"the client was woken {woken_ms:.1f} ms late"
        if woken_ms < _WOKEN_MS:
            reason = f"the client was busy with other replies for {busy_ms:.1f} ms"
        yield f"{late_ms:+.1f} ms from its time, {fate}: {reason}"


def steal_ms() -> int:
    """What the hypervisor has given to others since the machine started, all cores together (proc(5))."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) * 1000 // os.sysconf("SC_CLK_TCK")
