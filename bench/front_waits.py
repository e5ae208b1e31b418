"""What a long wait of the event loop after a step was made of, as far as a process may see without a privilege.

Four parts, which make up the wait: the ``border``, until the next step began and the bell was rung; ``work``, in which
the loop's thread ran; ``core``, in which it wanted to and another thread had the core; and what is left, in which it
slept though the bell had been rung: for the interpreter, which the step thread had, or on a core that was halted and
that its host gave back late. Beside them what may explain them: for how long the ``client`` ran meanwhile, and how much
of all cores was stolen since the step before, as the kernel counts it, in hundredths of a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

LONG_MS = 0.5  # nobody may wait for longer
_SHOWN = 12
_STAT = Path("/proc/stat")
_STEAL_FIELD = 8  # of its first line; proc(5)
_SCHED_CLOCK = 2  # of a clock id in Linux: the time that a process was on a core


@dataclass(frozen=True)
class Wait:
    """Milliseconds."""

    wait: float
    border: float
    work: float
    core: float
    client: float
    stolen: float

    @property
    def asleep(self) -> float:
        """After the bell."""
        return max(0.0, self.wait - self.border - self.work - self.core)

    @property
    def cause(self) -> str:
        """Its longest part; a core is told by whoever may have had it."""
        parts = {"the border": self.border, "the loop's own work": self.work, "a core": self.core, "sleep": self.asleep}
        longest = max(parts, key=lambda part: parts[part])
        if longest == "a core":
            return "a core beside the client" if self.client > self.core / 2 else "a core that others had"
        return "the interpreter or a halted core" if longest == "sleep" else longest

    def __str__(self) -> str:
        parts = {each.name: getattr(self, each.name) for each in fields(self)} | {"asleep": self.asleep}
        return f"{self.cause:34}" + "  ".join(f"{name} {value:5.2f}" for name, value in parts.items())


@dataclass(frozen=True)
class Moment:
    """Nanoseconds: the time, and what the loop's thread and the client have run until then."""

    at: int
    ran: int
    client: int


class Watch:
    """Looks at the thread of the loop, which makes it, and at the process ``client``."""

    def __init__(self, client: int) -> None:
        self._ran = time.pthread_getcpuclockid(threading.get_ident())
        self._client = ~client << 3 | _SCHED_CLOCK
        self._scheduled = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._stolen, self._delayed = stolen_ms(), self._delayed_ns()

    def look(self) -> Moment:
        """Any thread, the step's too: it takes a microsecond, which the loop waits for."""
        ran, client = time.clock_gettime_ns(self._ran), time.clock_gettime_ns(self._client)
        return Moment(time.monotonic_ns(), ran, client)

    def since(self) -> tuple[int, float]:
        """How long the loop has waited for a core since the last call, nanoseconds, and milliseconds stolen of all."""
        delayed, stolen = self._delayed, self._stolen
        self._delayed, self._stolen = self._delayed_ns(), stolen_ms()
        return self._delayed - delayed, self._stolen - stolen

    def _delayed_ns(self) -> int:
        return int(self._scheduled.read_text().split()[1])


def stolen_ms() -> float:
    """Of all cores, since the machine's start."""
    with _STAT.open("rb") as file:
        return int(file.readline().split()[_STEAL_FIELD]) * 1000 / os.sysconf("SC_CLK_TCK")


def made_of(before: Moment, after: Moment, wait_ns: int, border_ns: int, since: tuple[int, float]) -> Wait:
    """A wait that began at ``before`` and had a border of so long. ``since``: from the wait before on."""
    (delayed_ns, stolen), ran_ns = since, after.ran - before.ran
    border_ns = min(border_ns, wait_ns)
    core_ns = min(delayed_ns, max(0, wait_ns - ran_ns))
    return Wait(*(ns / 1e6 for ns in (wait_ns, border_ns, ran_ns, core_ns, after.client - before.client)), stolen)


def lines(waits: Iterable[dict[str, Any]], steps: int) -> Iterator[str]:
    """For people: how many there were of each cause, and the longest ones."""
    found = sorted((Wait(**each) for each in waits), key=lambda each: -each.wait)
    yield f"  {len(found)} of {steps} waits of the loop were over {LONG_MS:g} ms"
    for cause, count in Counter(each.cause for each in found).most_common():
        yield f"    {count:4} for {cause}"
    yield from (f"    {each}" for each in found[:_SHOWN])


def as_json(waits: Iterable[Wait]) -> list[dict[str, float]]:
    """What ``lines`` reads."""
    return [asdict(each) for each in waits]
