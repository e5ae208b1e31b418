"""The flight recorder: what it keeps of each step, and what it says about outliers."""

from __future__ import annotations

import gc
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zerolayer.errors import EngineFailed
from zerolayer.model._native import page_faults
from zerolayer.model.letters import StepReport
from zerolayer.model.recorder import STEPS, Recorder, StepRecord, table, write

MS = 1_000_000


class Clock:
    now = 1000 * MS

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stat(tmp_path: Path) -> Path:
    path = tmp_path / "stat"
    steal(path, 0)
    return path


@pytest.fixture
def recorder(clock: Clock, stat: Path) -> Iterator[Recorder]:
    """A step may take a millisecond a row."""
    made = Recorder(clock, lambda rows, _tokens: rows * MS, stat)
    made.start()
    yield made
    made.stop()


def steal(path: Path, ticks: int) -> None:
    path.write_text(f"cpu  9 9 9 9 9 9 9 {ticks} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")


def report(took_ns: int, started_ns: int = 5 * MS, *, rows: int = 1, tokens: int = 0, program: str = "greedy",
           faults: int = 0) -> StepReport:  # fmt: skip
    ended = started_ns + took_ns
    return StepReport(started_ns, ended, program, tuple(range(rows)), prefill_tokens=tokens, faults=faults)


def step(recorder: Recorder, took_ms: int, *, rows: int = 1, tokens: int = 0, program: str = "greedy",
         faults: int = 0) -> StepRecord:  # fmt: skip
    recorder.step(report(took_ms * MS, rows=rows, tokens=tokens, program=program, faults=faults))
    return recorder.records()[-1]


def test_a_step_is_kept_with_its_rows_and_its_program(recorder: Recorder) -> None:
    kept = step(recorder, 2, rows=3, tokens=17, program="chat")
    assert (kept.started_ns, kept.duration_ns, kept.bound_ns) == (5 * MS, 2 * MS, 3 * MS)
    assert (kept.decode_rows, kept.prefill_tokens, kept.program) == (3, 17, "chat")


def test_each_program_keeps_its_name(recorder: Recorder) -> None:
    names = ["greedy", "full", "chat", "full"]
    for name in names:
        step(recorder, 1, program=name)
    assert [record.program for record in recorder.records()] == names


def test_the_last_thousand_steps_stay_oldest_first(recorder: Recorder) -> None:
    for number in range(STEPS + 3):
        recorder.step(report(1, number))
    assert [record.started_ns for record in recorder.records()] == list(range(3, STEPS + 3))


def test_a_step_within_its_bound_has_no_causes(recorder: Recorder) -> None:
    assert step(recorder, 1).causes == ()


def test_shared_cores_and_threads_at_rest_are_told_of_any_step(clock: Clock, stat: Path) -> None:
    shared = Recorder(clock, lambda rows, _tokens: rows * MS, stat, beside=lambda: (True, 1))
    assert step(shared, 1).causes == ("cores shared", "1 thread at rest")
    assert step(shared, 9).causes == ("over bound", "cores shared", "1 thread at rest")


def test_a_step_that_only_beats_is_kept_with_its_row_and_says_so(recorder: Recorder) -> None:
    recorder.step(StepReport(5 * MS, 7 * MS, "greedy", beats=True, beat_rows=1))
    kept = recorder.records()[-1]
    assert (kept.decode_rows, kept.bound_ns, kept.causes) == (1, MS, ("over bound", "heartbeat"))
    assert step(recorder, 1).causes == ()


def test_a_step_without_a_bound_is_no_outlier(recorder: Recorder) -> None:
    assert not step(recorder, 50, rows=0, tokens=8).outlier


def test_an_outlier_is_over_bound_if_nothing_else_happened(recorder: Recorder, clock: Clock) -> None:
    assert step(recorder, 9).causes[0] == "over bound"


def test_what_is_no_step_is_not_recorded(recorder: Recorder) -> None:
    recorder.step(StepReport(5 * MS, 5 * MS, "none", released=[1]))
    recorder.step(StepReport(5 * MS, 6 * MS, "none", released=[1], failure=EngineFailed("broken on purpose")))
    assert recorder.records() == []


def test_an_outlier_tells_the_time_that_the_hypervisor_took(recorder: Recorder, clock: Clock, stat: Path) -> None:
    steal(stat, 5)
    clock.now += 99 * MS
    steal_ms = 5 * 1000 // os.sysconf("SC_CLK_TCK")
    assert f"steal {steal_ms} ms in 100 ms" in step(recorder, 9).causes


def test_steal_is_not_read_for_a_step_within_its_bound(recorder: Recorder, stat: Path) -> None:
    steal(stat, 5)
    assert step(recorder, 1).steal_window_ms == 0


def test_a_system_without_proc_stat_has_no_steal(clock: Clock, tmp_path: Path) -> None:
    recorder = Recorder(clock, lambda _rows, _tokens: 1, tmp_path / "missing")
    assert step(recorder, 9).steal_ms == 0


def test_an_outlier_tells_the_time_of_garbage_collections(clock: Clock, stat: Path) -> None:
    def ticking() -> int:
        clock.now += MS
        return clock.now

    recorder = Recorder(ticking, lambda _rows, _tokens: MS, stat)
    recorder.start()
    gc.collect()
    recorder.stop()
    assert "garbage collection 1000 us" in step(recorder, 9).causes


def test_a_collection_is_told_in_one_step_only(recorder: Recorder, clock: Clock) -> None:
    gc.collect()
    step(recorder, 9)
    assert step(recorder, 9).collection_ns == 0


def test_an_outlier_tells_its_page_faults(recorder: Recorder) -> None:
    assert step(recorder, 9, faults=70).page_faults == 0  # those of the thread's start, and not of this step
    told = step(recorder, 9, faults=73)
    assert (told.page_faults, told.causes) == (3, ("over bound", "3 page faults"))


def test_the_page_faults_of_a_thread_are_its_own() -> None:
    before = page_faults()
    with mmap.mmap(-1, mmap.PAGESIZE) as fresh:  # memory of the allocator may have been touched before
        fresh[0] = 1
        assert page_faults() > before


def test_a_stopped_recorder_leaves_no_callback_behind(clock: Clock, stat: Path) -> None:
    before = len(gc.callbacks)
    recorder = Recorder(clock, lambda _rows, _tokens: 0, stat)
    recorder.start()
    recorder.stop()
    assert len(gc.callbacks) == before


def test_the_ring_takes_no_memory_after_the_first_round(recorder: Recorder) -> None:
    late = report(9 * MS)

    def rounds(count: int) -> None:
        for _ in range(count):
            recorder.step(late)

    rounds(STEPS)
    before = sys.getallocatedblocks()
    rounds(STEPS)
    assert sys.getallocatedblocks() - before < 10


def test_the_table_has_a_line_a_step_with_its_causes(recorder: Recorder) -> None:
    step(recorder, 1, program="chat")
    step(recorder, 9)
    header, first, second = table(recorder.records(), 1005 * MS).splitlines()
    assert header.split() == ["ago_s", "took_us", "bound_us", "decode", "prefill", "program", "causes"]
    assert first.split() == ["1.000", "1000", "1000", "1", "0", "chat"]
    assert second.split()[:6] == ["1.000", "9000", "1000", "1", "0", "greedy"]
    assert "over bound" in second


def test_the_text_goes_to_the_state_folder_for_the_user_alone(tmp_path: Path) -> None:
    place = Path(write("steps\n", {"XDG_STATE_HOME": str(tmp_path)}))
    assert place == tmp_path / "zerolayer" / f"steps-{os.getpid()}.txt"
    assert (place.read_text(), place.stat().st_mode & 0o77) == ("steps\n", 0)


def test_the_state_folder_is_in_the_home_by_default(tmp_path: Path) -> None:
    assert Path(write("steps\n", {"HOME": str(tmp_path)})).is_relative_to(tmp_path / ".local" / "state")


def test_writing_again_replaces_the_file(tmp_path: Path) -> None:
    for text in ("one\n", "two\n"):
        place = Path(write(text, {"XDG_STATE_HOME": str(tmp_path)}))
    assert [path.read_text() for path in place.parent.iterdir()] == ["two\n"]


def test_without_a_place_for_files_the_text_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zerolayer").write_text("a file where the folder would be")
    place = write("steps\n", {"XDG_STATE_HOME": str(tmp_path)})
    assert (place, capsys.readouterr().err) == ("stderr", "steps\n")
