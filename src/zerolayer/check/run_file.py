"""The result file: everything one run saw, request by request, and nothing that was concluded from it.

Format "zerolayer pulse", JSON, times in microseconds since the run began. Conclusions are recomputed by whoever reads
it. A reader takes its own version and older ones, and refuses newer ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from zerolayer.check.errors import InputFileError
from zerolayer.check.files import read_bytes, write_bytes

FORMAT = "zerolayer pulse"
VERSION = 4  # 2 adds closed loops and stages, 3 a budget, 4 the pace of the client's machine
Ints = NDArray[np.int64]

BASELINE, PULSE, STEP, RETRY, SHADOW, ABORT, AFTER, REPLAY, CAPTURE, CLOSED, STAGE = (
    "baseline",
    "pulse",
    "step",
    "retry",
    "shadow",
    "abort",
    "after-abort",
    "replay",
    "capture",
    "closed",
    "stage",
)
PHASES = (BASELINE, PULSE, STEP, RETRY, SHADOW, ABORT, AFTER, REPLAY, CAPTURE, CLOSED, STAGE)
REFUSALS = (429, 503, 529)  # busy by RFC 6585, RFC 9110, and Anthropic's own


class TargetInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured. ``address`` holds no credentials and no query."""

    address: str
    api: Literal["openai", "anthropic", "http", "capture"]
    software: str = ""  # as recognised; empty if not
    model: str = ""


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arrivals at a rate that goes evenly from one value to another, in requests per second."""

    start_rate: float
    end_rate: float
    seconds: float


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How it was measured; every duration in ms unless the name says otherwise.

    With a budget, numbers that are not ``fixed`` are the most that is done, and a run's settings what was done.
    """

    probes: int = 200
    largest_pulse: int = 64
    repeats: int = 10
    gap_factor: float = 2.0  # rest after a pulse, in times of its worst latency
    step_shares: tuple[float, ...] = (0.5, 0.7, 0.9, 1.1)  # of the rate that the pulses show
    step_rates: tuple[float, ...] = ()  # requests per second, in place of shares
    step_seconds: float = 10.0
    stages: tuple[Stage, ...] = ()  # in place of steps
    users: int = 0  # of a closed loop in place of steps
    think_ms: float = 0.0  # mean of a user's pause between a reply and the next request
    max_rate: float = 200.0
    retries: int = 60
    aborts: bool = True
    output_tokens: int = 12
    prompt_words: int = 0  # words added to the prompt
    timeout_s: float = 60.0
    max_wait_s: float = 30.0  # longest promised wait that is tried
    max_lag_ms: float = 0.0  # of the client itself; 0 = the larger of 1 ms and a tenth of S0
    timer_probes: int = 200  # waits by which the client's own lag is measured
    seed: int = 1
    budget_s: float = 0.0  # how long the whole may take; 0 = as long as it takes
    fixed: tuple[str, ...] = ()  # numbers that no budget changes


class _Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parallel lists, one entry a request, in the order of sending; -1 = did not happen."""

    phase: list[int]
    group: list[int]
    size: list[int]
    position: list[int]
    intended: list[int]
    sent: list[int]
    first: list[int]
    end: list[int]
    status: list[int]
    promised_ms: list[int]
    events: list[int]
    prompt_tokens: list[int]
    lag: list[int]


class _Reads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Socket reads that held body bytes of streams: row of the request, time, complete events in it."""

    request: list[int]
    time: list[int]
    events: list[int]


class _Pace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fixed piece of work on the client's machine, timed now and then: in which phase, and how long it took."""

    phase: list[int]
    took: list[int]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    started: str
    target: TargetInfo
    settings: Settings
    timer_lag: list[int]
    requests: _Columns
    reads: _Reads
    pace: _Pace = _Pace([], [])


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Run:
    """One run. Arrays of equal length, one entry a request; times in microseconds since the run began, -1 = never.

    ``phase`` indexes ``PHASES``; ``group`` numbers pulses and steps over the whole run; ``size`` is a pulse's number
    of requests, a step's rate per second, a stage's number, or the users of a closed loop; ``first`` is the first token
    of a stream, else the first byte; ``end`` is -1 unless the reply came whole; ``status`` is 0 without a reply;
    ``lag`` bounds how late this client can have been in reading the reply. ``timer_lag`` is what the client's own timer
    was late by, measured before anything was sent. ``pace_took`` is what a fixed piece of work took on the client's
    machine before requests of ``pace_phase``; empty where nobody wanted to know.
    """

    started: str
    target: TargetInfo
    settings: Settings
    timer_lag: Ints
    phase: Ints
    group: Ints
    size: Ints
    position: Ints
    intended: Ints
    sent: Ints
    first: Ints
    end: Ints
    status: Ints
    promised_ms: Ints
    events: Ints
    prompt_tokens: Ints
    lag: Ints
    read_request: Ints
    read_time: Ints
    read_events: Ints
    pace_phase: Ints = field(default_factory=_none)
    pace_took: Ints = field(default_factory=_none)

    def paces_ms(self, phase: str) -> NDArray[np.float64]:
        """How long the fixed piece of work took on the client's machine, each time during this phase."""
        return np.asarray(self.pace_took[self.pace_phase == PHASES.index(phase)] / 1000, dtype=np.float64)

    def rows(self, *phases: str) -> NDArray[np.bool_]:
        """A mask of the requests of these phases."""
        return np.isin(self.phase, [PHASES.index(phase) for phase in phases])

    @property
    def served(self) -> NDArray[np.bool_]:
        """Answered wholly, with a status of success: only these have latencies."""
        return (self.status >= 200) & (self.status < 300) & (self.end >= 0)

    @property
    def refused(self) -> NDArray[np.bool_]:
        """Turned away as busy."""
        return np.isin(self.status, REFUSALS)

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """From the intended time to the end: what a user would have seen; NaN where not served."""
        return np.where(self.served, (self.end - self.intended) / 1000, np.nan)

    @property
    def sent_latency_ms(self) -> NDArray[np.float64]:
        """From the real send to the end: the same without this client's own lateness."""
        return np.where(self.served, (self.end - self.sent) / 1000, np.nan)

    @property
    def first_ms(self) -> NDArray[np.float64]:
        """From the intended time to the first token or byte; NaN where none came."""
        return np.where(self.served & (self.first >= 0), (self.first - self.intended) / 1000, np.nan)


COLUMNS = _Columns.__struct_fields__


def write(run: Run, path: Path) -> None:
    """Save ``run``. Raises ``InputFileError`` when the file cannot be written."""
    file = _File(
        format=FORMAT,
        version=VERSION,
        started=run.started,
        target=run.target,
        settings=run.settings,
        timer_lag=run.timer_lag.tolist(),
        requests=_Columns(*(getattr(run, name).tolist() for name in COLUMNS)),
        reads=_Reads(run.read_request.tolist(), run.read_time.tolist(), run.read_events.tolist()),
        pace=_Pace(run.pace_phase.tolist(), run.pace_took.tolist()),
    )
    write_bytes(path, msgspec.json.encode(file) + b"\n")


class _Head(msgspec.Struct, frozen=True):
    """What every version of the file has."""

    format: str
    version: int


def read(path: Path) -> Run:
    """Load a run. Raises ``InputFileError`` for another format, a newer version, or a damaged file."""
    data = read_bytes(path)
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.DecodeError:
        raise InputFileError(f"{path.name} is no result of `zerolayer pulse`. Save one with --save FILE.") from None
    if head.format != FORMAT:
        raise InputFileError(f"{path.name} is no result of `zerolayer pulse`. Save one with --save FILE.")
    if head.version > VERSION:
        raise InputFileError(
            f"{path.name} has version {head.version}, newer than {VERSION}, the newest this program reads. Update it."
        )
    try:
        file = msgspec.json.decode(data, type=_File)
        return _run(file)
    except (msgspec.DecodeError, OverflowError):
        raise InputFileError(f"{path.name} is damaged. Measure again, or restore the file.") from None


def _run(file: _File) -> Run:
    columns = {name: np.array(getattr(file.requests, name), dtype=np.int64) for name in COLUMNS}
    reads = [np.array(part, dtype=np.int64) for part in (file.reads.request, file.reads.time, file.reads.events)]
    paces = [np.array(part, dtype=np.int64) for part in (file.pace.phase, file.pace.took)]
    count = len(columns["phase"])
    fits = all(len(column) == count for column in columns.values()) and len({len(part) for part in reads}) == 1
    fits = fits and len(paces[0]) == len(paces[1])
    if (
        not fits
        or np.any((reads[0] < 0) | (reads[0] >= count))
        or np.any(~np.isin(columns["phase"], range(len(PHASES))))
    ):
        raise msgspec.ValidationError("columns do not fit together")
    return Run(
        file.started,
        file.target,
        file.settings,
        np.array(file.timer_lag, dtype=np.int64),
        *columns.values(),
        *reads,
        *paces,
    )
