"""Whether two processes read the same monotonic clock, and how far apart they are if not.

Linux's monotonic clock counts from the start of the machine, the same in all processes but for those in another time
namespace (time_namespaces(7)).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from zerolayer.serve.takeover.messages import Clocks

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/time")


def clocks() -> Clocks:
    """Those of the process that asks, now."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        boot = ""
    try:
        namespace = str(_NAMESPACE.readlink())
    except OSError:  # older kernels have one for all
        namespace = ""
    return Clocks(boot, namespace, time.monotonic_ns(), time.time_ns())


def ahead_ns(own: Clocks, other: Clocks) -> int:
    """What to add to a monotonic time of ``other`` to have it by ``own``; by the wall clock where they differ."""
    if own.boot and (own.boot, own.namespace) == (other.boot, other.namespace):
        return 0
    return (own.monotonic_ns - own.wall_ns) - (other.monotonic_ns - other.wall_ns)
