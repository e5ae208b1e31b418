"""How much of its full speed a device has, by its own sensors; clients prefer the node that is not throttled.

A CPU: how far the kernel has lowered the highest clock that its cores may take, since the server started
(``scaling_max_freq``; the kernel's Documentation/admin-guide/pm/cpufreq.rst). A GPU that is given to this process by
``CUDA_VISIBLE_DEVICES`` or ``NVIDIA_VISIBLE_DEVICES``: its clock, while it slows down for heat or power.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from zerolayer.model.nvml import Nvml, Reading

_log = logging.getLogger("zerolayer.model")

_CPUS: Final = Path("/sys/devices/system/cpu")
_LEAST: Final = 0.01  # clients divide by it
_TOLD: Final = 0.02  # a change that is worth a line


class Derating:
    """``look`` now and then; it reads some small files, and asks a driver where there is one."""

    def __init__(self, cores: Iterable[int], gpu: Callable[[], Reading | None] | None, root: Path = _CPUS) -> None:
        self._files = [root / f"cpu{core}" / "cpufreq" / "scaling_max_freq" for core in cores]
        self._gpu = gpu
        self._at_start = self._allowed()
        self._share = 1.0

    @classmethod
    def of_process(cls, environ: Mapping[str, str]) -> Derating:
        """Of the cores and the GPU that this process may use."""
        gpu = Nvml.open(device) if (device := gpu_of(environ)) else None
        return cls(sorted(os.sched_getaffinity(0)), None if gpu is None else gpu.read)

    @property
    def watches(self) -> bool:
        """Whether there is any sensor here."""
        return bool(self._at_start) or self._gpu is not None

    def look(self) -> float:
        """The share now, over 0 and at most 1."""
        reading = None if self._gpu is None else self._gpu()
        share = max(_LEAST, min(self._of_cores(), 1.0 if reading is None else reading.share))
        if abs(share - self._share) >= _TOLD:
            heat = "" if reading is None else f"; its GPU has {reading.temperature} degrees"
            now, was = share * 100, self._share * 100
            _log.warning("the device runs at %.0f %% of its full speed, was %.0f %%%s", now, was, heat)
            self._share = share
        return share

    def _of_cores(self) -> float:
        """Of the slowest: a step waits for all of its threads."""
        now = self._allowed()
        shares = [now[file] / most for file, most in self._at_start.items() if file in now]
        return min([1.0, *shares])

    def _allowed(self) -> dict[Path, int]:
        """The highest clock that each core may take now, in kHz, as far as the system tells."""
        clocks: dict[Path, int] = {}
        for file in self._files:
            try:
                clocks[file] = int(file.read_text("ascii"))
            except (OSError, ValueError):
                continue
        return {file: clock for file, clock in clocks.items() if clock > 0}


def gpu_of(environ: Mapping[str, str]) -> str:
    """The one GPU that this process was given, as an index or a UUID; empty for none or several."""
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        given = environ.get(name, "").strip()
        if given.isdigit() or (given.startswith("GPU-") and given.isascii() and "," not in given):
            return given
    return ""
