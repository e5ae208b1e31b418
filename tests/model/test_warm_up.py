"""The steps before the first request: what they enter in the cost table, on a quiet machine and on a busy one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reference.engines import Engines
from reference.tiny_model import LLAMA_64
from zerolayer.model.cost import CostTable
from zerolayer.model.cost_cache import read
from zerolayer.model.mock_engine import MockEngine
from zerolayer.model.prefix_cache import Kept
from zerolayer.model.warm_up import measure

MS = 1_000_000
CHUNK = 8


def engine(slots: int) -> MockEngine:
    return MockEngine(
        slots=slots, slot_tokens=32, chunk_tokens=CHUNK, step_us=0, vocabulary=300, sleep=lambda _seconds: None
    )


def steps_of(*elapsed_ms: int) -> Callable[[], int]:
    """A clock by which the measured steps take these times, the last one again and again."""

    def ticks() -> Iterator[int]:
        now, at = 0, 0
        while True:
            yield now
            now += elapsed_ms[min(at, len(elapsed_ms) - 1)] * MS
            at += 1
            yield now

    return ticks().__next__


def measured(slots: int, *elapsed_ms: int) -> CostTable:
    cost = CostTable(slots=slots, chunk_tokens=CHUNK)
    measure(engine(slots), cost, steps_of(*elapsed_ms))
    return cost


@pytest.mark.parametrize("slots", [1, 2, 16])
def test_every_kind_of_step_has_a_cost(slots: int) -> None:
    cost = measured(slots, 10)
    assert cost.typical_ns() == 10 * MS
    assert cost.typical_ns(prefill_tokens=CHUNK) >= 10 * MS


@pytest.mark.parametrize("token_id", [0, 5])
def test_whatever_an_earlier_run_has_kept_whole_chunks_are_measured(engines: Engines, token_id: int) -> None:
    native = engines.open(LLAMA_64, slots=3, chunk_tokens=64, prefixes=2, prefix_tokens=128)
    native.keep_prefix(Kept(b"", [token_id] * 100))
    cost = CostTable(slots=3, chunk_tokens=64)
    measure(native, cost, time.monotonic_ns)
    assert cost.typical_ns(prefill_tokens=64) > cost.typical_ns() > 0


@pytest.mark.parametrize("decoding", [(10, 10), (900, 10, 11), (10, 900, 700, 11)])
def test_a_disturbed_step_is_no_measure_of_the_engine(decoding: tuple[int, ...]) -> None:
    cost = measured(8, *decoding, 50)
    assert cost.decode_bound_ns() < 15 * MS
    assert cost.typical_ns(prefill_tokens=CHUNK) == 50 * MS


def test_a_machine_that_is_always_disturbed_does_not_keep_the_start_waiting() -> None:
    cost = measured(8, 10, 20, 40, 80, 160, 320, 50)
    assert cost.decode_bound_ns() < 15 * MS


@pytest.mark.parametrize("slots", [1, 8])
def test_nothing_is_left_open(slots: int) -> None:
    tried = engine(slots)
    measure(tried, CostTable(slots=slots, chunk_tokens=CHUNK), steps_of(10))
    assert all(slot not in tried._slots for slot in range(slots))


@pytest.mark.parametrize(
    ("scored_ms", "share"),
    [(30, 0.625), (110, 1.0), (10, 0.3), (9, 0.3)],  # of the 40 ms that a full chunk adds to 10, with a margin
)
def test_a_chunk_that_is_scored_is_priced_by_its_share_of_a_full_one(scored_ms: int, share: float) -> None:
    assert measured(8, 10, 10, 50, scored_ms).scored_share == share


def test_where_a_chunk_adds_nothing_a_scored_one_counts_as_a_full_one() -> None:
    assert measured(8, 10).scored_share == 1.0


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file of a start by which a step of one slot takes 10 ms, one of all slots 40, a chunk 160 more."""
    file = tmp_path / "costs.json"
    cost = CostTable(slots=8, chunk_tokens=CHUNK)
    measure(engine(8), cost, steps_of(40, 40, 200, 80, 80, 10), file)
    assert cost.typical_ns() == 40 * MS
    return file


@pytest.mark.parametrize("disturbed_ms", [(), (900,), (900, 16, 20)], ids=["quiet", "disturbed", "busy"])
def test_the_next_start_takes_what_was_kept_once_a_step_of_one_slot_takes_what_it_took(
    kept: Path, disturbed_ms: tuple[int, ...]
) -> None:
    cost, tried = CostTable(slots=8, chunk_tokens=CHUNK), engine(8)
    measure(tried, cost, steps_of(*disturbed_ms, 11, 999), kept)
    assert cost.typical_ns() == 40 * MS
    assert cost.typical_ns(prefill_tokens=CHUNK) == 200 * MS
    assert cost.scored_share == pytest.approx(1.25 * 40 / 160)
    assert tried._slots == {}


@pytest.mark.parametrize("alone_ms", [6, 16], ids=["faster", "slower"])
def test_a_machine_that_is_not_as_it_was_is_measured_anew(kept: Path, alone_ms: int) -> None:
    cost = CostTable(slots=8, chunk_tokens=CHUNK)
    measure(engine(8), cost, steps_of(alone_ms, 70), kept)
    assert cost.typical_ns() == 70 * MS


def test_what_was_measured_anew_is_kept_instead(kept: Path) -> None:
    measure(engine(8), CostTable(slots=8, chunk_tokens=CHUNK), steps_of(16, 70), kept)
    times = read(kept)
    assert times is not None
    assert {elapsed for _, _, elapsed in times.steps} == {70 * MS}


def test_a_damaged_file_is_rebuilt(kept: Path) -> None:
    kept.write_bytes(b"{")
    cost = CostTable(slots=8, chunk_tokens=CHUNK)
    measure(engine(8), cost, steps_of(70), kept)
    assert cost.typical_ns() == 70 * MS
    assert read(kept) is not None


def test_the_native_engine_has_room_for_every_step_that_is_tried(engines: Engines) -> None:
    native, cost = engines.open(LLAMA_64), CostTable(slots=4, chunk_tokens=32)
    measure(native, cost, steps_of(10, 20, 40, 80, 160, 320, 50, 100, 20, 90))
    assert cost.decode_bound_ns() > 0
