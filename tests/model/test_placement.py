"""Which threads are pinned, and how the greeting says what the system gave."""

from __future__ import annotations

import errno
from pathlib import Path

from zerolayer.model.placement import choose_cores, page_note, pinning_refused

MB = 1 << 20


def system(root: Path, *, mode: str = "always [madvise] never", rollup: str | None = "AnonHugePages: 51200 kB") -> Path:
    enabled = root / "sys/kernel/mm/transparent_hugepage/enabled"
    enabled.parent.mkdir(parents=True)
    enabled.write_text(mode + "\n")
    if rollup is not None:
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/smaps_rollup").write_text(f"Rss: 1 kB\n{rollup}\n")
    return root


def test_the_workers_of_all_cores_are_pinned_and_the_step_thread_is_not() -> None:
    assert choose_cores(3, [0, 2, 5], pin=True)[0] == (2, 5)


def test_the_note_names_the_cores() -> None:
    assert choose_cores(2, [4, 7], pin=True)[1] == "worker threads pinned to core 7; the step thread is free to move"


def test_fewer_threads_than_cores_are_not_pinned() -> None:
    cores, note = choose_cores(2, range(8), pin=True)
    assert (cores, "fewer than the 8 cores" in note) == ((), True)


def test_more_threads_than_cores_are_not_pinned() -> None:
    assert choose_cores(4, range(2), pin=True)[0] == ()


def test_one_thread_is_not_pinned() -> None:
    assert choose_cores(1, [0], pin=True) == ((), "threads are not pinned: there is only one")


def test_the_contract_can_forbid_it() -> None:
    assert choose_cores(2, [0, 1], pin=False) == ((), "threads are not pinned: engine.pin is false")


def test_a_refusal_tells_the_systems_reason() -> None:
    assert "Operation not permitted" in pinning_refused(errno.EPERM)


def test_large_pages_are_told_in_megabytes(tmp_path: Path) -> None:
    assert page_note(64 * MB, system(tmp_path)) == "2 MB pages: asked for 64 MB, got 50 MB"


def test_pages_of_others_in_the_process_are_not_counted(tmp_path: Path) -> None:
    assert page_note(32 * MB, system(tmp_path)) == "2 MB pages: asked for 32 MB, got 32 MB"


def test_a_system_that_forbids_large_pages_is_named(tmp_path: Path) -> None:
    assert "says never" in page_note(MB, system(tmp_path, mode="always madvise [never]"))


def test_a_system_that_does_not_say_is_told_as_such(tmp_path: Path) -> None:
    assert "does not say" in page_note(MB, system(tmp_path, rollup=None))
