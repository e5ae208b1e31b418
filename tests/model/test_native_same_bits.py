"""A generation has the same bits alone or among others, however its prompt is cut, on every kernel set."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from reference.engines import Engines, with_type
from reference.schedule import Run, alone, slotless, together
from reference.tiny_model import LLAMA_64, MISTRAL, QWEN2, QWEN3, SHAPES, SMOL, TinyShape
from zerolayer.errors import StartupError
from zerolayer.model import _native
from zerolayer.model.engine import Generation, SampledToken, StepPlan
from zerolayer.model.native_engine import NativeEngine
from zerolayer.wire.schema import Sampling

KERNELS = ("amx", "amx-emulated", "vnni", "avx512", "avx2", "portable")
CHUNKS = (1, 3, 16, 31, 32)
SLOTS = 9


def job(number: int, prompt: int = 40, output: int = 12) -> Generation:
    """Generations that differ in everything. All report logprobs, so that every bit of the logits counts."""
    sampling = Sampling(
        temperature=(0.0, 0.7, 1.3)[number % 3],
        top_k=(0, 20)[number % 2],
        top_p=(1.0, 0.9)[number // 2 % 2],
        repetition_penalty=(1.0, 1.2)[number // 3 % 2],
        seed=1000 + number,
        top_logprobs=20,
    )
    ids = [(number * 97 + 13 * i * i + 5 * i) % 304 + 3 for i in range(prompt + 3 * number)]
    return Generation(ids, sampling, output + number % 4, ignore_eos=True)


LONG = job(0, prompt=90).prompt
FOUR = {slot: job(slot) for slot in range(4)}


def bits(tokens: list[SampledToken]) -> list[tuple[int, bytes]]:
    """Token ids with every logprob down to its last bit."""
    out = []
    for token in tokens:
        assert token.logprob is not None
        numbers = [token.logprob.logprob, *(alternative.logprob for alternative in token.logprob.top)]
        order = [alternative.token_id for alternative in token.logprob.top]
        out.append((token.token_id, np.array(numbers).tobytes() + np.array(order).tobytes()))
    return out


@pytest.fixture(params=[LLAMA_64, MISTRAL, QWEN2, QWEN3], ids=lambda shape: shape.name)
def shape(request: pytest.FixtureRequest) -> TinyShape:
    return request.param


@pytest.fixture
def engine(engines: Engines, shape: TinyShape) -> NativeEngine:
    return engines.open(shape, slots=SLOTS)


@pytest.mark.parametrize("others", [1, 2, 8])
def test_neighbours_change_nothing(engine: NativeEngine, others: int) -> None:
    jobs = {slot: job(slot) for slot in range(others + 1)}
    crowd = together(engine, jobs)
    for slot, generation in jobs.items():
        assert bits(crowd[slot]) == bits(alone(engine, generation))


def test_the_slot_changes_nothing(engine: NativeEngine) -> None:
    runs = [bits(alone(engine, job(4), slot=slot)) for slot in (0, 3, SLOTS - 1)]
    assert runs[0] == runs[1] == runs[2]


def test_the_chunk_size_changes_nothing(engine: NativeEngine) -> None:
    runs = [bits(alone(engine, job(1, prompt=100), chunk=chunk)) for chunk in CHUNKS]
    assert all(run == runs[0] for run in runs)


def test_what_a_slot_held_before_changes_nothing(engine: NativeEngine) -> None:
    fresh = bits(alone(engine, job(2), slot=1))
    alone(engine, job(7, prompt=150, output=40), slot=1)
    assert bits(alone(engine, job(2), slot=1)) == fresh


def test_an_uneven_schedule_changes_nothing(engine: NativeEngine) -> None:
    """Chunks of changing size, slots that join late, decode rows left out of a step."""
    jobs = {slot: job(slot) for slot in range(5)}
    run, random = Run(engine), np.random.default_rng(3)
    waiting = list(jobs)
    while waiting or run.open:
        if waiting and random.random() < 0.3:
            run.admit(slot := waiting.pop(), jobs[slot])
        decode = [slot for slot in run.decoding() if random.random() < 0.7]
        prefill = run.prefilling()
        chosen = int(random.choice(prefill)) if prefill else -1
        tokens = int(random.integers(1, min(32, engine.prefill_left(chosen)) + 1)) if prefill else 0
        if decode or prefill:
            run.step(StepPlan(decode, chosen, tokens))
    for slot, generation in jobs.items():
        assert bits(slotless(run.tokens[slot])) == bits(alone(engine, generation))


def test_the_number_of_threads_changes_nothing(engines: Engines, engine: NativeEngine, shape: TinyShape) -> None:
    two = engines.open(shape, slots=SLOTS, threads=2)
    jobs = {slot: job(slot, output=4) for slot in range(3)}
    one_thread, two_threads = together(engine, jobs), together(two, jobs)
    assert all(bits(one_thread[slot]) == bits(two_threads[slot]) for slot in jobs)


class Portable:
    """What the portable kernels give for a shape, found out once for all sets that are compared with it."""

    def __init__(self) -> None:
        self._logits: dict[TinyShape, NDArray[np.float32]] = {}
        self._generations: dict[TinyShape, dict[int, list[SampledToken]]] = {}

    def logits(self, engines: Engines, shape: TinyShape) -> NDArray[np.float32]:
        if shape not in self._logits:
            self._logits[shape] = engines.open(shape, kernels="portable").logits(LONG)
        return self._logits[shape]

    def generations(self, engines: Engines, shape: TinyShape) -> dict[int, list[SampledToken]]:
        if shape not in self._generations:
            self._generations[shape] = together(engines.open(shape, kernels="portable"), FOUR)
        return self._generations[shape]


@pytest.fixture(scope="module")
def portable() -> Portable:
    return Portable()


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("kind", ["F32", "Q4_1"])
def test_every_kernel_set_gives_the_portable_one_s_logits(
    engines: Engines, portable: Portable, shape: TinyShape, kernels: str, kind: str
) -> None:
    _skip_unless_supported(kernels)
    typed = with_type(shape, kind)
    want, got = portable.logits(engines, typed), engines.open(typed, kernels=kernels).logits(LONG)
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("kernels", KERNELS)
def test_every_kernel_set_gives_the_portable_one_s_generations(
    engines: Engines, portable: Portable, shape: TinyShape, kernels: str
) -> None:
    _skip_unless_supported(kernels)
    want, got = portable.generations(engines, shape), together(engines.open(shape, kernels=kernels), FOUR)
    assert all(bits(got[slot]) == bits(want[slot]) for slot in FOUR)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_logits_do_not_depend_on_what_comes_later(engines: Engines, shape: TinyShape) -> None:
    engine = engines.open(shape)
    ids = job(3, prompt=60).prompt
    assert np.array_equal(engine.logits(ids)[:33], engine.logits(ids[:33]))


def test_bundled_generations_are_the_same_alone_and_together(
    bundled_engine: NativeEngine, prose_ids: list[int]
) -> None:
    jobs = {
        slot: msgspec.structs.replace(job(slot, output=6), prompt=prose_ids[50 * slot : 50 * slot + 30 + 20 * slot])
        for slot in range(4)
    }
    crowd = together(bundled_engine, jobs, chunk=128)
    for slot, generation in jobs.items():
        assert bits(crowd[slot]) == bits(alone(bundled_engine, generation, slot=3 - slot, chunk=17))


@pytest.mark.parametrize("kernels", [kernels for kernels in KERNELS if kernels != "amx-emulated"])  # takes minutes
def test_bundled_logits_are_the_same_on_every_kernel_set(
    engines: Engines, bundled_engine: NativeEngine, bundled_path: Path, prose_ids: list[int], kernels: str
) -> None:
    _skip_unless_supported(kernels)
    engine = engines.open(bundled_path, slots=1, slot_tokens=64, kernels=kernels)
    ids = prose_ids[:24]
    assert np.array_equal(engine.logits(ids), bundled_engine.logits(ids))


def test_the_portable_kernels_are_always_there() -> None:
    assert _native.kernel_sets()[-1] == "portable"


def test_a_kernel_set_that_does_not_exist_is_refused(engines: Engines) -> None:
    with pytest.raises(StartupError, match="portable"):
        engines.open(SMOL, kernels="abacus")


def _skip_unless_supported(kernels: str) -> None:
    here = _native.kernel_sets()
    needed = "avx2" if kernels == "amx-emulated" else kernels  # never chosen by itself
    if needed not in here:
        pytest.skip(f"this CPU has no {needed} kernels; here: {', '.join(here)}")
