"""The steps before the first request: what they enter in the cost table, on a quiet machine and on a busy one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from reference.engines import Engines
from reference.tiny_model import LLAMA_64
from zerolayer.model.cost import CostTable
from zerolayer.model.mock_engine import MockEngine
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


def test_the_native_engine_has_room_for_every_step_that_is_tried(engines: Engines) -> None:
    native, cost = engines.open(LLAMA_64), CostTable(slots=4, chunk_tokens=32)
    measure(native, cost, steps_of(10, 20, 40, 80, 160, 320, 50, 100, 20, 90))
    assert cost.decode_bound_ns() > 0
