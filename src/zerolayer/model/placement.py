"""Where threads run and which pages memory has: what was asked for, and in words what the system gave.

Sources: sched_setaffinity(2), proc(5) (``smaps_rollup``), and the kernel's Documentation/admin-guide/mm/transhuge.rst.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def choose_cores(threads: int, usable: Sequence[int], *, pin: bool) -> tuple[tuple[int, ...], str]:
    """The core of each worker thread (the engine's threads but the first), and what was decided, in words.

    Workers are pinned only when the threads take every core: one that keeps to one of several cores cannot flee from
    another program that keeps to the same one. The first thread, which steps, stays free: the event loop wakes up on
    its core, and would wait for it (docs/operations.md has the measurement).
    """
    if not pin:
        return (), "threads are not pinned: engine.pin is false"
    if threads == 1:
        return (), "threads are not pinned: there is only one"
    if threads != len(usable):
        fewer = "fewer" if threads < len(usable) else "more"
        return (), f"threads are not pinned: they are {fewer} than the {len(usable)} cores, so the system places them"
    cores = tuple(usable[1:])
    where = f"core {cores[0]}" if len(cores) == 1 else f"cores {', '.join(str(core) for core in cores)}"
    return cores, f"worker threads pinned to {where}; the step thread is free to move"


def pinning_refused(error: int) -> str:
    """The note when the system did not allow pinning; ``error`` is its error number."""
    return f"threads are not pinned: the system refused ({os.strerror(error)})"


def page_note(taken: int, root: Path = Path("/")) -> str:
    """How much of ``taken`` bytes, all touched, lies in 2 MB pages."""
    mode = _chosen(_read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    if mode == "never":
        return "2 MB pages: none, /sys/kernel/mm/transparent_hugepage/enabled says never"
    for line in _read(root / "proc/self/smaps_rollup").splitlines():
        name, _, value = line.partition(":")
        if name == "AnonHugePages":
            got = min(int(value.split()[0]) << 10, taken)
            return f"2 MB pages: asked for {taken >> 20} MB, got {got >> 20} MB"
    return f"2 MB pages: asked for {taken >> 20} MB; the system does not say what it gave"


def _chosen(text: str) -> str:
    """The word in brackets."""
    return text.partition("[")[2].partition("]")[0]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
