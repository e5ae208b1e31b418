"""What this machine will do to latency: one finding a check, each with its limit and its remedy. Reads files only.

Sources: the kernel's Documentation/admin-guide/mm/transhuge.rst, pm/cpufreq.rst and cgroup-v2.rst, listen(2), proc(5)
(``stat``, ``pressure``, ``net/netstat``, ``self/sched``) and sysfs-devices-system-cpu. Nothing here needs root.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

BACKLOG: Final = 4096  # what the server asks of its accept queue
_CONNECTIONS: Final = 4096  # descriptors below which many clients are refused
_STEAL: Final = 0.01
_PRESSURE: Final = 10.0  # per cent of the last minute in which something waited for a core
_SLICE_NS: Final = 1_000_000
_FINE_CLOCKS: Final = frozenset({"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"})
_KERNELS: Final = ("amx_int8", "avx512_vnni", "avx512bw", "avx2", "asimd")


class Verdict(StrEnum):
    """What a value means for latency."""

    OK = "ok"
    WATCH = "watch"
    BAD = "bad"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """``value`` was seen, ``limit`` is what it should be; ``remedy`` is empty where nothing needs to be done."""

    layer: str
    check: str
    value: str
    limit: str
    verdict: Verdict
    remedy: str = ""
    needs_root: bool = False


Check = Callable[[Path], Finding]


def examine(root: Path = Path("/")) -> Iterator[Finding]:
    """All checks in the order of the layers; ``root`` is for tests."""
    for check in _CHECKS:
        yield check(root)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):  # not there, not ours, or no path at all
        return ""


def _whole(text: str) -> int | None:
    """The number that a file of the kernel holds, if it holds one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _bracketed(text: str) -> str:
    return text.partition("[")[2].partition("]")[0]


def huge_pages(root: Path) -> Finding:
    """2 MB pages halve the time of address translation for weights that are read once a step."""
    mode = _bracketed(_read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    finding = Finding("kernel", "2 MB pages", mode or "not told", "madvise or always", Verdict.OK)
    if not mode:
        return msgspec.structs.replace(finding, verdict=Verdict.UNKNOWN)
    if mode == "never":
        remedy = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        return msgspec.structs.replace(finding, verdict=Verdict.BAD, remedy=remedy, needs_root=True)
    return finding


def accept_queue(root: Path) -> Finding:
    """A short accept queue delays a client's first attempt by a second, unseen by the server."""
    text = _read(root / "proc/sys/net/core/somaxconn")
    finding = Finding("kernel", "accept queue", text or "not told", f"at least {BACKLOG}", Verdict.OK)
    length = _whole(text)
    if length is None:
        return msgspec.structs.replace(finding, verdict=Verdict.UNKNOWN)
    if length < BACKLOG:
        return msgspec.structs.replace(
            finding, verdict=Verdict.WATCH, remedy=f"sysctl -w net.core.somaxconn={BACKLOG}", needs_root=True
        )
    return finding


def accept_overflows(root: Path) -> Finding:
    """Connections that were dropped because some accept queue of this machine was full."""
    lines = [line.split() for line in _read(root / "proc/net/netstat").splitlines() if line.startswith("TcpExt:")]
    counts = dict(zip(lines[0], lines[1], strict=False)) if len(lines) >= 2 else {}
    count = counts.get("ListenOverflows", "")
    finding = Finding("kernel", "accept queue overflows", count or "not told", "0 since boot", Verdict.OK)
    dropped = _whole(count)
    if dropped is None:
        return msgspec.structs.replace(finding, verdict=Verdict.UNKNOWN)
    if dropped:
        remedy = "find the listener with `ss -ltn` (Recv-Q near Send-Q) and give it a longer queue or more processes"
        return msgspec.structs.replace(finding, verdict=Verdict.WATCH, remedy=remedy)
    return finding


def descriptors(_root: Path) -> Finding:
    """A connection is a descriptor; the server raises its soft limit to the hard one by itself."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    value = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    if hard != resource.RLIM_INFINITY and hard < _CONNECTIONS:
        remedy = "raise it where the service is started: LimitNOFILE= of systemd, `ulimit -Hn`, --ulimit of a container"
        return Finding("kernel", "open files", value, f"at least {_CONNECTIONS}", Verdict.WATCH, remedy)
    return Finding("kernel", "open files", value, f"at least {_CONNECTIONS}", Verdict.OK)


def slice_ns(root: Path) -> Finding:
    """The share of a core that a thread keeps before another may run (EEVDF, kernels from 6.6 on)."""
    release = _read(root / "proc/sys/kernel/osrelease")
    text = next((line for line in _read(root / "proc/self/sched").splitlines() if line.startswith("se.slice")), "")
    value = _whole(text.rpartition(":")[2].strip())
    if value is not None:
        shown = f"{value / 1e6:g} ms"
        if value > _SLICE_NS and _version(release) < (6, 12):
            remedy = "a kernel from 6.12 on lets the server ask for 0.1 ms for its loop, without privilege"
            return Finding("kernel", "thread slice", shown, "a request for 0.1 ms is kept", Verdict.WATCH, remedy)
        return Finding("kernel", "thread slice", shown, "a request for 0.1 ms is kept", Verdict.OK)
    return Finding("kernel", "thread slice", f"not told by {release or 'this kernel'}", "0.1 ms", Verdict.UNKNOWN)


def _version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return _whole(major) or 0, _whole(minor) or 0


def cores(_root: Path) -> Finding:
    """What the affinity mask of this process allows."""
    usable = len(os.sched_getaffinity(0))
    if usable == 1:
        remedy = "give the process a second core: the event loop and the engine share this one"
        return Finding("processor", "cores", "1", "2 or more", Verdict.WATCH, remedy)
    return Finding("processor", "cores", str(usable), "2 or more", Verdict.OK)


def quota(root: Path) -> Finding:
    """A control group's quota stops all threads in the middle of a step once it is used up; the smallest one counts."""
    limited = [(share, group) for group in _control_groups(root) if (share := _cores_allowed(group)) is not None]
    if not limited:
        return Finding("processor", "quota", "none", "none, or whole cores", Verdict.OK)
    share, group = min(limited)
    counted = dict(line.split() for line in _read(group / "cpu.stat").splitlines() if len(line.split()) == 2)
    times = _whole(counted.get("nr_throttled", "")) or 0
    value = f"{share:g} cores, times stopped: {times}"
    if share != int(share) or times:
        remedy = "use whole cores (cpusets, the static CPU manager of Kubernetes) in place of a quota"
        return Finding("processor", "quota", value, "none, or whole cores", Verdict.BAD, remedy)
    return Finding("processor", "quota", value, "none, or whole cores", Verdict.OK)


def _control_groups(root: Path) -> Iterator[Path]:
    """The folders of this process's groups and of all above them, as versions 2 and 1 lay them out."""
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        folder = mount / controllers / name.lstrip("/")
        while folder.is_relative_to(mount):
            yield folder
            folder = folder.parent
    yield mount  # inside a container the name often points outside of what is mounted


def _cores_allowed(group: Path) -> float | None:
    limit, _, period = _read(group / "cpu.max").partition(" ")
    if not limit:
        limit, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    allowed, of = _whole(limit), _whole(period)
    return allowed / of if allowed is not None and of else None


def governor(root: Path) -> Finding:
    """A governor that saves power makes the first steps after a pause slow."""
    found = {_read(path) for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    if not found:
        return Finding("processor", "governor", "not told (virtual machine?)", "performance", Verdict.UNKNOWN)
    value = ", ".join(sorted(found))
    if found != {"performance"}:
        remedy = "cpupower frequency-set -g performance"
        return Finding("processor", "governor", value, "performance", Verdict.WATCH, remedy, needs_root=True)
    return Finding("processor", "governor", value, "performance", Verdict.OK)


def instructions(root: Path) -> Finding:
    """The integer products that the kernels can use, best first."""
    flags = set(_read(root / "proc/cpuinfo").replace("\t", " ").split())
    best = next((name for name in _KERNELS if name in flags), "")
    if not flags:
        return Finding("processor", "integer products", "not told", "avx512_vnni or amx_int8", Verdict.UNKNOWN)
    if best in ("amx_int8", "avx512_vnni"):
        return Finding("processor", "integer products", best, "avx512_vnni or amx_int8", Verdict.OK)
    remedy = "a processor with VNNI or AMX computes several times as fast; in a virtual machine, pass the host's type"
    return Finding("processor", "integer products", best or "plain", "avx512_vnni or amx_int8", Verdict.WATCH, remedy)


def steal(root: Path) -> Finding:
    """Time in which a virtual core wanted to run and the host ran somebody else."""
    fields = _read(root / "proc/stat").partition("\n")[0].split()[1:]
    ticks = [_whole(field) for field in fields[:8]]
    if len(ticks) < 8 or None in ticks:
        return Finding("processor", "stolen time", "not told", f"under {100 * _STEAL:g} %", Verdict.UNKNOWN)
    share = (ticks[7] or 0) / max(1, sum(tick or 0 for tick in ticks))
    seen, limit = f"{100 * share:.2f} % since boot", f"under {100 * _STEAL:g} %"
    if share > _STEAL:
        remedy = "ask for dedicated cores: what the host takes away no server can promise"
        return Finding("processor", "stolen time", seen, limit, Verdict.BAD, remedy)
    return Finding("processor", "stolen time", seen, limit, Verdict.OK)


def pressure(root: Path) -> Finding:
    """Whether something else wants the cores (PSI)."""
    some = _read(root / "proc/pressure/cpu").partition("\n")[0]
    text = next((part.partition("=")[2] for part in some.split() if part.startswith("avg60=")), "")
    try:
        value = float(text)
    except ValueError:
        return Finding("processor", "cores contended", "not told", f"under {_PRESSURE:g} %", Verdict.UNKNOWN)
    seen, limit = f"{value:.2f} % of a minute", f"under {_PRESSURE:g} %"
    if value > _PRESSURE:
        remedy = "stop what else runs, or give the server cores of its own with `taskset`"
        return Finding("processor", "cores contended", seen, limit, Verdict.WATCH, remedy)
    return Finding("processor", "cores contended", seen, limit, Verdict.OK)


def numa(root: Path) -> Finding:
    """Weights on another node are read at half the speed."""
    text = _read(root / "sys/devices/system/node/online")
    if not text:
        return Finding("memory", "NUMA nodes", "not told", "1", Verdict.UNKNOWN)
    if text == "0":
        return Finding("memory", "NUMA nodes", "1", "1", Verdict.OK)
    remedy = "start one server for each node: numactl --cpunodebind=N --membind=N zerolayer serve"
    return Finding("memory", "NUMA nodes", text, "1", Verdict.WATCH, remedy)


def free_memory(root: Path) -> Finding:
    """All memory is taken at start; what is swapped out later stops a step."""
    values = {
        name: _whole(rest.strip().partition(" ")[0]) or 0
        for name, _, rest in (line.partition(":") for line in _read(root / "proc/meminfo").splitlines())
    }
    if "MemAvailable" not in values:
        return Finding("memory", "free memory", "not told", "no swapping", Verdict.UNKNOWN)
    swapped = values.get("SwapTotal", 0) - values.get("SwapFree", 0)
    value = f"{values['MemAvailable'] / 1e6:.1f} GB, {swapped / 1e3:.0f} MB swapped out"
    if swapped:
        return Finding("memory", "free memory", value, "no swapping", Verdict.WATCH, "free memory, or swapoff -a")
    return Finding("memory", "free memory", value, "no swapping", Verdict.OK)


def clock_source(root: Path) -> Finding:
    """A clock that needs a system call costs a microsecond for every time stamp."""
    name = _read(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not name:
        return Finding("time", "clock source", "not told", "tsc", Verdict.UNKNOWN)
    if name not in _FINE_CLOCKS:
        remedy = "boot with clocksource=tsc, or move to a host whose counter is stable"
        return Finding("time", "clock source", name, "tsc", Verdict.BAD, remedy, needs_root=True)
    return Finding("time", "clock source", name, "tsc", Verdict.OK)


def gpu(root: Path) -> Finding:
    """Where the driver says that there is one."""
    name = _read(root / "proc/driver/nvidia/version").partition("\n")[0].partition(":")[2].strip()
    return Finding("devices", "GPU driver", name or "none", "none is needed", Verdict.OK)


def network(root: Path) -> Finding:
    """Cards with a link, and their speed."""
    cards = []
    for card in sorted((root / "sys/class/net").glob("*")):
        speed = _read(card / "speed")
        if card.name != "lo" and _read(card / "operstate") in ("up", "unknown"):
            cards.append(f"{card.name} {speed} Mbit/s" if speed.isdigit() else card.name)
    return Finding("devices", "network", ", ".join(cards) or "loopback only", "any", Verdict.OK)


_CHECKS: Final[tuple[Check, ...]] = (
    huge_pages,
    accept_queue,
    accept_overflows,
    descriptors,
    slice_ns,
    cores,
    quota,
    governor,
    instructions,
    steal,
    pressure,
    numa,
    free_memory,
    clock_source,
    gpu,
    network,
)
