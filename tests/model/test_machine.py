"""Threads and memory from made-up machines."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from zerolayer.model.machine import Machine

MEMINFO = "MemTotal:       64000000 kB\nMemAvailable:   32000000 kB\n"


def machine(root: Path, cores: int, files: dict[str, str], group: str = "0::/service") -> Machine:
    for name, text in {"proc/self/cgroup": group + "\n", "proc/meminfo": MEMINFO, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine.read(root, cores)


def test_without_limits_every_core_of_the_affinity_gets_a_thread(tmp_path: Path) -> None:
    assert machine(tmp_path, 6, {}).threads()[0] == 6


def test_a_whole_quota_gives_as_many_threads(tmp_path: Path) -> None:
    assert machine(tmp_path, 8, {"sys/fs/cgroup/service/cpu.max": "300000 100000\n"}).threads()[0] == 3


def test_a_fractional_quota_gives_one_thread_fewer_and_says_why(tmp_path: Path) -> None:
    threads, why = machine(tmp_path, 8, {"sys/fs/cgroup/service/cpu.max": "250000 100000\n"}).threads()
    assert threads == 2
    assert "2.5" in why


def test_a_quota_below_one_core_still_gives_a_thread(tmp_path: Path) -> None:
    assert machine(tmp_path, 8, {"sys/fs/cgroup/service/cpu.max": "50000 100000\n"}).threads()[0] == 1


def test_a_quota_above_the_affinity_changes_nothing(tmp_path: Path) -> None:
    assert machine(tmp_path, 2, {"sys/fs/cgroup/service/cpu.max": "650000 100000\n"}).threads()[0] == 2


def test_a_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "200000 100000\n"}
    assert machine(tmp_path, 8, files, group="0::/a/b").threads()[0] == 2


def test_a_container_whose_group_name_points_outside_its_mount_finds_the_limit(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "200000 100000\n"}
    assert machine(tmp_path, 8, files, group="0::/../../host/path").threads()[0] == 2


def test_version_1_groups_count_too(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/service/"
    files = {folder + "cpu.cfs_quota_us": "200000\n", folder + "cpu.cfs_period_us": "100000\n"}
    assert machine(tmp_path, 8, files, group="4:cpu,cpuacct:/service").threads()[0] == 2


def test_version_1_without_a_limit_has_none(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu/service/"
    files = {folder + "cpu.cfs_quota_us": "-1\n", folder + "cpu.cfs_period_us": "100000\n"}
    assert machine(tmp_path, 8, files, group="4:cpu:/service").quota is None


def test_threads_that_were_asked_for_are_given(tmp_path: Path) -> None:
    assert machine(tmp_path, 2, {}).threads(5)[0] == 5


def test_memory_is_what_the_system_has_available(tmp_path: Path) -> None:
    assert machine(tmp_path, 1, {}).memory == 32_000_000 * 1024


def test_memory_is_what_the_control_group_leaves(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/service/"
    files = {folder + "memory.max": "1000000\n", folder + "memory.current": "400000\n"}
    assert machine(tmp_path, 1, files).memory == 600_000


def test_files_that_a_group_has_read_are_no_use_of_its_memory(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/service/"
    files = {folder + "memory.max": "1000000\n", folder + "memory.current": "990000\n"}
    files[folder + "memory.stat"] = "anon 90000\nfile 900000\ninactive_file 600000\nactive_file 200000\nshmem 100000\n"
    assert machine(tmp_path, 1, files).memory == 1_000_000 - 190_000


def test_files_that_groups_below_have_read_are_no_use_either_in_version_1(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/service/"
    files = {folder + "memory.limit_in_bytes": "1000000\n", folder + "memory.usage_in_bytes": "990000\n"}
    own, total = "inactive_file 1\nactive_file 2\n", "total_inactive_file 500000\ntotal_active_file 100000\n"
    files[folder + "memory.stat"] = own + total
    assert machine(tmp_path, 1, files, group="4:memory:/service").memory == 1_000_000 - 390_000


@pytest.mark.parametrize("text", ["", "garbage", "inactive_file\n", "inactive_file max\n", "inactive_file 99999999\n"])
def test_counts_that_make_no_sense_leave_no_more_than_the_limit(tmp_path: Path, text: str) -> None:
    folder = "sys/fs/cgroup/service/"
    files = {folder + "memory.max": "1000000\n", folder + "memory.current": "400000\n", folder + "memory.stat": text}
    assert 600_000 <= machine(tmp_path, 1, files).memory <= 1_000_000


@pytest.mark.parametrize(("limit", "used"), [(resource.RLIMIT_AS, 2000), (resource.RLIMIT_DATA, 700)])
def test_memory_is_what_the_process_s_own_limits_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, used: int
) -> None:
    page = resource.getpagesize()
    limits = {limit: (5000 * page, resource.RLIM_INFINITY)}
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind, unlimited))
    assert machine(tmp_path, 1, {"proc/self/statm": "2000 900 300 1 0 700 0\n"}).memory == (5000 - used) * page


@pytest.mark.parametrize("text", ["", "garbage", "100", "max", "12 0"])
def test_a_limit_file_that_makes_no_sense_is_no_limit(tmp_path: Path, text: str) -> None:
    assert machine(tmp_path, 4, {"sys/fs/cgroup/service/cpu.max": text}).quota is None
