"""What is compiled of the accounts does what its specification in Python does, number for number."""

from __future__ import annotations

import observe_specification as specification
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.observe import _native

TIMES = st.integers(0, 2**56)
SPANS = st.tuples(TIMES, TIMES).map(sorted)
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("mark"), st.integers(0, specification.STAGES - 1), TIMES),
        st.tuples(st.just("step"), SPANS),
        st.tuples(st.just("shared"), SPANS, st.integers(0, 10**9)),
        st.tuples(st.sampled_from(["ride", "alight", "settle", "first_token"])),
    ),
    max_size=30,
)


def _told(clock, shared) -> tuple[object, ...]:
    return (
        clock.spent_ns(), clock.started_ns, clock.last_ns, clock.computes, shared.last_ns, shared.wait_ns,
        shared.arithmetic_ns, shared.core_ns,
    )  # fmt: skip


def _lived(module, first_byte_ns: int, deeds) -> list[tuple[object, ...]]:
    """What the accounts tell after each deed."""
    clock, shared, rides, told = module.StageSums(first_byte_ns), module.SharedSteps(), 0, []
    for deed, *given_ in deeds:
        if deed == "mark":
            clock.mark(*given_)
        elif deed == "step":
            clock.step(*given_[0])
        elif deed == "shared":
            shared.step(*given_[0], given_[1])
        elif deed == "ride":
            clock.ride(shared)
            rides += 1
        elif deed == "alight":
            if rides:
                clock.alight()
                rides -= 1
        else:
            getattr(clock, deed)()
        told.append(_told(clock, shared))
    return told


@given(TIMES, DEEDS)
def test_the_account_of_a_request(first_byte_ns, deeds):
    assert _lived(_native, first_byte_ns, deeds) == _lived(specification, first_byte_ns, deeds)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["enter", "leave", "busy_ns"]), TIMES),
            st.tuples(st.just("step"), TIMES, TIMES),
        ),
        max_size=30,
    )
)
def test_the_busy_time_of_a_server(deeds):
    made, expected, inside = _native.BusySums(), specification.BusySums(), 0
    for deed, *at in deeds:
        if deed == "leave" and not inside:
            continue
        inside += {"enter": 1, "leave": -1}.get(deed, 0)
        assert getattr(made, deed)(*at) == getattr(expected, deed)(*at)
        assert (made.arithmetic_ns, made.in_flight) == (expected.arithmetic_ns, expected.in_flight)


@pytest.mark.parametrize("stage", [-1, specification.STAGES])
def test_there_are_no_other_stages(stage):
    clock = _native.StageSums(0)
    with pytest.raises(IndexError):
        clock.mark(stage, 1)
    assert clock.spent_ns() == (0,) * specification.STAGES


@pytest.mark.parametrize("given_", [(), (1,), (1, 2, 3), (1, "2"), (1, 2**70)])
def test_marks_are_two_whole_numbers(given_):
    with pytest.raises((TypeError, OverflowError)):
        _native.StageSums(0).mark(*given_)


def test_shared_steps_live_as_long_as_somebody_rides_in_them():
    clock, steps = _native.StageSums(0), _native.SharedSteps()
    clock.ride(steps)
    steps.step(0, 10, 0)
    del steps
    clock.settle()
    assert clock.spent_ns()[specification.PREFILL] == 10


def test_only_shared_steps_can_be_ridden():
    with pytest.raises(TypeError):
        _native.StageSums(0).ride(object())
