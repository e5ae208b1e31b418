"""What this process may use of the machine: cores from its affinity, time and memory from its control groups.

The host's core count and memory say nothing about a container. Sources: sched_getaffinity(2), cgroups(7), and the
kernel's Documentation/admin-guide/cgroup-v2.rst (``cpu.max``, ``memory.max``, ``memory.stat``) and cgroup-v1
(``cpu.cfs_quota_us``, ``memory.limit_in_bytes``), getrlimit(2), proc(5) (``statm``).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """``cores`` of the affinity mask, ``quota`` in cores (None: no limit), ``memory`` bytes that can still be taken."""

    cores: int
    quota: float | None
    memory: int

    @classmethod
    def read(cls, root: Path = Path("/"), cores: int | None = None) -> Machine:
        """Look at this process. ``root`` and ``cores`` are for tests."""
        usable = len(os.sched_getaffinity(0)) if cores is None else cores
        groups = list(_control_groups(root))
        quotas = [quota for group in groups if (quota := _cpu_quota(group)) is not None]
        memory = [left for group in groups if (left := _memory_left(group)) is not None]
        return cls(usable, min(quotas, default=None), min([*memory, _memory_available(root), *_limits_left(root)]))

    def threads(self, wanted: int = 0) -> tuple[int, str]:
        """Threads for the engine and the reason in words. ``wanted`` 0: as many as make sense.

        A fraction of a core in the quota would stop all threads in the middle of a step when it is used up, so it is
        left for the event loop.
        """
        if wanted > 0:
            return wanted, f"{wanted} threads as asked; {self.cores} cores may be used"
        if self.quota is None or self.quota >= self.cores:
            return self.cores, f"{self.cores} threads: the cores that this process may use"
        threads = max(1, int(self.quota))
        if threads == self.quota:
            return threads, f"{threads} threads: the control group's quota"
        why = f"the control group's quota is {self.quota:g} cores, its fraction is left to the event loop"
        return threads, f"{threads} threads: {why}"


def _control_groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups and of all above them, in both versions' layouts."""
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        # Version 1 mounts one tree a controller, or one for several, named after all of them.
        for controller in {controllers, *controllers.split(",")}:
            folder = mount / controller / name.lstrip("/")
            while folder.is_relative_to(mount):
                yield folder
                folder = folder.parent
    yield mount  # inside a container the name often points outside what is mounted


def _cpu_quota(group: Path) -> float | None:
    quota, _, period = _read(group / "cpu.max").strip().partition(" ")
    if not quota:
        quota, period = _read(group / "cpu.cfs_quota_us").strip(), _read(group / "cpu.cfs_period_us").strip()
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None  # "max" or -1: no limit here
    return int(quota) / int(period)


def _memory_left(group: Path) -> int | None:
    """What the group's limit leaves. Files that it read are no use of memory: the kernel drops them when it must."""
    for limit_file, used_file in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        limit = _read(group / limit_file).strip()
        if limit.isdigit():
            used = _read(group / used_file).strip()
            kept = (int(used) if used.isdigit() else 0) - _cached(group)
            return max(0, int(limit) - max(0, kept))
    return None


def _cached(group: Path) -> int:
    """Bytes of files in memory, of this group and those below it."""
    fields = dict(line.split(" ", 1) for line in _read(group / "memory.stat").splitlines() if " " in line)
    total = "total_" if "total_inactive_file" in fields else ""  # version 1 has both, its own first
    sizes = (fields.get(f"{total}{name}", "") for name in ("inactive_file", "active_file"))
    return sum(int(size) for size in sizes if size.isdigit())


def _limits_left(root: Path) -> Iterator[int]:
    """What the process's own limits (``ulimit -v``, ``-d``) leave of its address space and of its data."""
    pages = _read(root / "proc/self/statm").split()
    for limit, used in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY and len(pages) > used:
            yield max(0, most - int(pages[used]) * resource.getpagesize())


def _memory_available(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 1 << 62


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
