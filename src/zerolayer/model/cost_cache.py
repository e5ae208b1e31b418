"""Step times of the last start, for the next one: a file for each model, engine and machine, rebuilt when damaged.

JSON: ``{"version": 1, "steps": [[decode rows, prompt tokens, ns], ...], "scored_share": 0.4, "alone_ns": 3400000}``.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

import zerolayer
from zerolayer.model.cache_file import folder, replace
from zerolayer.model.engine import EngineInfo

_log = logging.getLogger("zerolayer.model")

VERSION: Final = 1
KEPT: Final = 32  # files: whoever tries many sizes need not clean up
_MOST_BYTES: Final = 1 << 16
_LONGEST_NS: Final = 10**12


class StepTimes(msgspec.Struct, frozen=True):
    """What the steps before the first request took.

    ``steps``: (decode rows, prompt tokens, nanoseconds). ``scored_share``: see ``CostTable``. ``alone_ns``: a step of
    one slot, by which a later start knows whether the machine is still as it was.
    """

    steps: list[tuple[int, int, int]]
    scored_share: float
    alone_ns: int

    @property
    def possible(self) -> bool:
        """Whether an engine can have taken these times."""
        shares = 0.0 <= self.scored_share <= 1.0
        rows = all(decode >= 0 and tokens >= 0 and decode + tokens > 0 for decode, tokens, _ in self.steps)
        times = (self.alone_ns, *(elapsed for _, _, elapsed in self.steps))
        return shares and rows and len(self.steps) > 0 and all(0 < elapsed < _LONGEST_NS for elapsed in times)


class _File(StepTimes, frozen=True):
    version: int


def place(environ: Mapping[str, str], files: str, info: EngineInfo, root: Path = Path("/")) -> Path | None:
    """The file of one engine on one machine. ``files``: what tells the model's files from others; "": there is none."""
    if not files:
        return None
    cores = sorted(os.sched_getaffinity(0))
    machine = (platform.machine(), _processor(root), cores)
    sizes = (info.kernels, info.weights, info.threads, info.slots, info.slot_tokens, info.chunk_tokens)
    known = repr((zerolayer.__version__, VERSION, files, sizes, info.memory_bytes, machine))
    return folder(environ) / f"costs-{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"


def read(path: Path) -> StepTimes | None:
    """What the last start measured, or None: it measured nothing, or nothing that can be used."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None
    return found if found.version == VERSION and found.possible else None


def write(path: Path, times: StepTimes) -> None:
    """Keep ``times``, and only the newest files of their kind. Where nothing can be written the next start measures."""
    data = msgspec.json.encode(_File(times.steps, times.scored_share, times.alone_ns, VERSION))
    try:
        replace(path, data)
    except OSError:
        _log.info("step times cannot be kept in %s; each start measures them", path.parent)
        return
    with contextlib.suppress(OSError):
        kept = sorted(path.parent.glob("costs-*.json"), key=lambda file: file.stat().st_mtime_ns)
        for old in kept[:-KEPT]:
            old.unlink(missing_ok=True)


def _processor(root: Path) -> str:
    """The processor's name, as Linux tells it."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
