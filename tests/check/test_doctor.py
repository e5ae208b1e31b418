"""What `zerolayer doctor` says about machines of every kind: files in, one finding a check out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from zerolayer import cli
from zerolayer.check import doctor
from zerolayer.check.doctor import Finding, Verdict, examine
from zerolayer.check.doctor_command import as_json, lines, probe

GROUP = "sys/fs/cgroup/a"
OWN_GROUP = ("proc/self/cgroup", "0::/a")


def machine(root: Path, *files: tuple[str, str]) -> Path:
    for name, text in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


GOOD = [
    (doctor.huge_pages, [("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")]),
    (doctor.accept_queue, [("proc/sys/net/core/somaxconn", "4096")]),
    (doctor.accept_overflows, [("proc/net/netstat", "TcpExt: A ListenOverflows\nTcpExt: 9 0")]),
    (doctor.slice_ns, [("proc/sys/kernel/osrelease", "6.12.3"), ("proc/self/sched", "se.slice   :   3000000")]),
    (doctor.quota, [OWN_GROUP, (f"{GROUP}/cpu.max", "max 100000")]),
    (doctor.quota, [OWN_GROUP, (f"{GROUP}/cpu.max", "200000 100000"), (f"{GROUP}/cpu.stat", "nr_throttled 0")]),
    (doctor.governor, [("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance")]),
    (doctor.instructions, [("proc/cpuinfo", "flags\t: sse2 avx2 avx512_vnni")]),
    (doctor.steal, [("proc/stat", "cpu  900 0 50 1000 0 0 0 10 0 0")]),
    (doctor.pressure, [("proc/pressure/cpu", "some avg10=1.00 avg60=0.50 avg300=0.10 total=1")]),
    (doctor.numa, [("sys/devices/system/node/online", "0")]),
    (doctor.free_memory, [("proc/meminfo", "MemAvailable: 1000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB")]),
    (doctor.clock_source, [("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")]),
]
POOR = [
    (doctor.huge_pages, [("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")]),
    (doctor.accept_queue, [("proc/sys/net/core/somaxconn", "128")]),
    (doctor.accept_overflows, [("proc/net/netstat", "TcpExt: A ListenOverflows\nTcpExt: 9 7")]),
    (doctor.slice_ns, [("proc/sys/kernel/osrelease", "6.8.0-45"), ("proc/self/sched", "se.slice   :   3000000")]),
    (doctor.quota, [OWN_GROUP, (f"{GROUP}/cpu.max", "150000 100000")]),
    (doctor.quota, [OWN_GROUP, (f"{GROUP}/cpu.max", "max 100000"), ("sys/fs/cgroup/cpu.max", "150000 100000")]),
    (
        doctor.quota,
        [
            ("proc/self/cgroup", "4:cpu,cpuacct:/a"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "50000"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000"),
        ],
    ),
    (doctor.quota, [OWN_GROUP, (f"{GROUP}/cpu.max", "200000 100000"), (f"{GROUP}/cpu.stat", "nr_throttled 4")]),
    (doctor.governor, [("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave")]),
    (doctor.instructions, [("proc/cpuinfo", "flags\t: sse2 avx2")]),
    (doctor.steal, [("proc/stat", "cpu  900 0 50 1000 0 0 0 200 0 0")]),
    (doctor.pressure, [("proc/pressure/cpu", "some avg10=1.00 avg60=40.00 avg300=0.10 total=1")]),
    (doctor.numa, [("sys/devices/system/node/online", "0-1")]),
    (doctor.free_memory, [("proc/meminfo", "MemAvailable: 1000 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB")]),
    (doctor.clock_source, [("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")]),
]
Case = tuple[Callable[[Path], Finding], list[tuple[str, str]]]


@pytest.mark.parametrize(("check", "files"), GOOD)
def test_a_good_value_needs_nothing(check: Callable[[Path], Finding], files: list[tuple[str, str]], tmp_path) -> None:
    finding = check(machine(tmp_path, *files))
    assert (finding.verdict, finding.remedy) == (Verdict.OK, "")


@pytest.mark.parametrize(("check", "files"), POOR)
def test_a_poor_value_has_a_remedy(check: Callable[[Path], Finding], files: list[tuple[str, str]], tmp_path) -> None:
    finding = check(machine(tmp_path, *files))
    assert finding.verdict in (Verdict.WATCH, Verdict.BAD)
    assert finding.remedy


def test_a_machine_that_tells_nothing_is_no_reason_for_alarm(tmp_path) -> None:
    findings = list(examine(tmp_path))
    assert len(findings) == 16
    assert not [finding for finding in findings if finding.verdict is Verdict.BAD]


@pytest.mark.parametrize("text", ["", "words", "-1", "\x00\xff", "9" * 5000])
def test_no_file_makes_a_check_fail(text: str, tmp_path) -> None:
    names = {name for _, files in GOOD + POOR for name, _ in files} | {"proc/driver/nvidia/version"}
    assert len(list(examine(machine(tmp_path, *((name, text) for name in names))))) == 16


def test_cards_are_told_with_their_speed(tmp_path) -> None:
    card = "sys/class/net/eth0"
    root = machine(tmp_path, (f"{card}/speed", "10000"), (f"{card}/operstate", "up"), ("sys/class/net/lo/speed", ""))
    assert doctor.network(root).value == "eth0 10000 Mbit/s"


def test_the_probe_tells_late_wake_ups() -> None:
    now = 0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += int(seconds * 1e9) + 2_000_000

    p99, worst = probe(lambda: now, sleep)
    assert (p99.value, p99.verdict, worst.verdict) == ("2.00 ms late", Verdict.WATCH, Verdict.OK)


def test_the_table_ends_with_what_to_do() -> None:
    bad = Finding("kernel", "pages", "never", "madvise", Verdict.BAD, "echo madvise", needs_root=True)
    good = Finding("time", "clock source", "tsc", "tsc", Verdict.OK)
    text = lines([bad, good])
    assert text[-1] == "  pages: echo madvise (as root)"
    assert text[1].split() == ["BAD", "kernel", "pages", "never", "madvise"]


def test_json_has_a_version_and_every_finding() -> None:
    document = json.loads(as_json([Finding("time", "clock source", "tsc", "tsc", Verdict.OK)]))
    assert (document["version"], document["findings"][0]["verdict"]) == (1, "ok")


def test_the_command_examines_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == (4 if any(finding["verdict"] == "bad" for finding in findings) else 0)
    assert {finding["layer"] for finding in findings} == {"kernel", "processor", "memory", "time", "devices", "probe"}
