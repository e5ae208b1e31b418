"""The flight recorder: the last steps in a ring of fixed size, without a word of any prompt.

A step that takes longer than its bound is an outlier, and its record keeps what else happened: time in garbage
collections (any thread's: they hold the interpreter), page faults of the step thread, and time that the hypervisor
gave to others. The first two are counted for every step; the last costs a file read and is looked at for outliers
only, so it is told for the time since the last look, with that time's length. What is written down is in the step's
report: nothing is done for it on the step thread, whose next step waits.
"""

from __future__ import annotations

import gc
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from zerolayer.model.letters import StepReport

STEPS = 1000
_RECORD = struct.Struct("<HqqqIIIIIQ?I?")
_STEAL_FIELD = 8  # of the first line of /proc/stat; proc(5)
_NS = 1_000_000_000


class StepRecord(msgspec.Struct, frozen=True):
    """One step. Times in nanoseconds; ``bound_ns`` 0: nothing was promised yet."""

    program: str
    started_ns: int
    duration_ns: int
    bound_ns: int
    decode_rows: int  # a heartbeat's included
    prefill_tokens: int
    page_faults: int
    steal_ms: int  # of all cores, since the last look
    steal_window_ms: int  # how long ago that was; 0: this step was no outlier
    collection_ns: int
    crowded: bool = False  # other programs ran on the engine's cores
    resting: int = 0  # threads of the engine that took no part when it ended
    beats: bool = False  # a heartbeat took part

    @property
    def outlier(self) -> bool:
        """Whether it took longer than its bound."""
        return 0 < self.bound_ns < self.duration_ns

    @property
    def causes(self) -> tuple[str, ...]:
        """What happened beside an outlier; only ``over bound`` where nothing did. Of any step: what shared it."""
        beside = (
            *(("heartbeat",) if self.beats else ()),
            *(("cores shared",) if self.crowded else ()),
            *((f"{self.resting} thread{'s' if self.resting > 1 else ''} at rest",) if self.resting else ()),
        )
        if not self.outlier:
            return beside
        seen = (
            (self.steal_ms, f"steal {self.steal_ms} ms in {self.steal_window_ms} ms"),
            (self.collection_ns, f"garbage collection {self.collection_ns // 1000} us"),
            (self.page_faults, f"{self.page_faults} page faults"),
        )
        return ("over bound", *(words for amount, words in seen if amount), *beside)


class Recorder:
    """``step`` is for one thread, ``records`` for any; the ring itself never grows.

    ``bound_ns(decode_rows, prefill_tokens)`` gives the bound of a step, 0 where there is none yet. ``beside()`` says
    whether other programs share the engine's cores, and how many of its threads take no part in steps.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int],
        bound_ns: Callable[[int, int], int],
        stat: Path = Path("/proc/stat"),
        beside: Callable[[], tuple[bool, int]] = lambda: (False, 0),
    ) -> None:
        self.now_ns = clock_ns
        self._bound_ns = bound_ns
        self._beside = beside
        self._ring = bytearray(STEPS * _RECORD.size)
        self._count = 0
        self._programs: list[str] = []
        self._stat = stat
        self._steal_ms = self._read_steal_ms()
        self._steal_looked_ns = clock_ns()
        self._faults: int | None = None  # as the last step told them
        self._collection_ns = 0
        self._collection_began_ns = 0
        self._collected_ns = 0  # of which the records know

    def start(self) -> None:
        """Begin to count collections."""
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Stop counting. Idempotent."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def step(self, report: StepReport) -> None:
        """Record one step, before it becomes part of the bound. What is no step is not recorded."""
        started_ns, ended_ns, decode_rows = report.started_ns, report.ended_ns, len(report.decode) + report.beat_rows
        if report.failure is not None or ended_ns <= started_ns:
            return
        prefill_tokens, program = report.prefill_tokens, report.program
        bound_ns = self._bound_ns(decode_rows, prefill_tokens)
        faults, collected = report.faults, self._collection_ns
        steal_ms = window_ms = 0
        if 0 < bound_ns < ended_ns - started_ns:
            steal_ms, window_ms = self._look_for_steal()
        if program not in self._programs:
            self._programs.append(program)
        _RECORD.pack_into(
            self._ring,
            self._count % STEPS * _RECORD.size,
            self._programs.index(program),
            started_ns,
            ended_ns - started_ns,
            bound_ns,
            decode_rows,
            prefill_tokens,
            0 if self._faults is None else faults - self._faults,
            steal_ms,
            window_ms,
            collected - self._collected_ns,
            *self._beside(),
            report.beats,
        )
        self._count += 1
        self._faults, self._collected_ns = faults, collected

    def records(self) -> list[StepRecord]:
        """The last steps, oldest first."""
        ring, count = bytes(self._ring), self._count
        size = _RECORD.size
        order = range(max(0, count - STEPS), count)
        rows = (_RECORD.unpack_from(ring, number % STEPS * size) for number in order)
        return [StepRecord(self._programs[program], *numbers) for program, *numbers in rows]

    def _look_for_steal(self) -> tuple[int, int]:
        now, steal_ms = self.now_ns(), self._read_steal_ms()
        passed, window = steal_ms - self._steal_ms, now - self._steal_looked_ns
        self._steal_ms, self._steal_looked_ns = steal_ms, now
        return max(0, passed), min(1 + window // 1_000_000, (1 << 32) - 1)

    def _read_steal_ms(self) -> int:
        try:
            with self._stat.open("rb") as file:
                fields = file.readline().split()
        except OSError:
            return 0
        return int(fields[_STEAL_FIELD]) * 1000 // os.sysconf("SC_CLK_TCK") if len(fields) > _STEAL_FIELD else 0

    def _on_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        now = self.now_ns()
        if phase == "start":
            self._collection_began_ns = now
        else:
            self._collection_ns += now - self._collection_began_ns


def table(records: list[StepRecord], now_ns: int) -> str:
    """One line a step, oldest first, for people and for ``awk``."""
    return "\n".join(_lines(records, now_ns)) + "\n"


def write(text: str, environ: Mapping[str, str]) -> str:
    """Put ``text`` into ``$XDG_STATE_HOME/zerolayer/steps-PID.txt``, else on stderr; says where it is.

    The folder is the one of the XDG Base Directory Specification 0.8, ``~/.local/state`` by default.
    """
    home = environ.get("XDG_STATE_HOME", "")
    state = Path(home) if Path(home).is_absolute() else Path(environ.get("HOME", "/nonexistent")) / ".local" / "state"
    folder = state / "zerolayer"
    path = folder / f"steps-{os.getpid()}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError:
        sys.stderr.write(text)
        sys.stderr.flush()
        return "stderr"
    return str(path)


def _lines(records: list[StepRecord], now_ns: int) -> Iterator[str]:
    yield f"{'ago_s':>10} {'took_us':>9} {'bound_us':>9} {'decode':>6} {'prefill':>7} {'program':<12} causes"
    for record in records:
        ago = (now_ns - record.started_ns) / _NS
        yield (
            f"{ago:10.3f} {record.duration_ns // 1000:9d} {record.bound_ns // 1000:9d} {record.decode_rows:6d} "
            f"{record.prefill_tokens:7d} {record.program:<12} {', '.join(record.causes)}"
        ).rstrip()
