"""Who pays for a core's time."""

import observe_specification as specification
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.observe.compute import IDLE, OTHER, ComputeMeter, labelled

MS = 1_000_000


def test_a_step_is_split_evenly_between_its_decode_rows():
    meter = ComputeMeter(cores=2, slots=4, now_ns=0)
    meter.begin(0, "bank")
    meter.begin(1, "shop")
    charge = meter.step(0, 10 * MS, [0, 1], -1, 0.0)
    assert charge.row_ns == 10 * MS
    assert meter.totals == {IDLE: 0, "bank": 10 * MS, "shop": 10 * MS}


def test_a_chunk_pays_its_share_and_the_rows_pay_the_rest():
    meter = ComputeMeter(cores=1, slots=4, now_ns=0)
    for slot, tenant in enumerate(("bank", "shop", "mill")):
        meter.begin(slot, tenant)
    meter.step(0, 10 * MS, [0, 1], 2, 0.6)
    assert meter.totals == {IDLE: 0, "bank": 2 * MS, "shop": 2 * MS, "mill": 6 * MS}


def test_a_chunk_alone_pays_for_the_whole_step():
    meter = ComputeMeter(cores=1, slots=1, now_ns=0)
    meter.begin(0, "bank")
    assert meter.step(0, 7 * MS, [], 0, 0.1).chunk_ns == 7 * MS


def test_time_between_steps_is_idle():
    meter = ComputeMeter(cores=2, slots=1, now_ns=0)
    meter.begin(0, "bank")
    meter.step(3 * MS, 5 * MS, [0], -1, 0.0)
    meter.rest(9 * MS)
    assert meter.totals == {IDLE: 14 * MS, "bank": 4 * MS}


def test_a_chunk_of_the_engines_own_is_idle():
    meter = ComputeMeter(cores=1, slots=1, now_ns=0)
    meter.begin(0, "bank")
    meter.step(0, 10 * MS, [0], -1, 0.4)
    assert meter.totals == {IDLE: 4 * MS, "bank": 6 * MS}


def test_a_step_that_a_scrape_overtook_is_charged_for_what_is_left_of_it():
    meter = ComputeMeter(cores=1, slots=1, now_ns=0)
    meter.begin(0, "bank")
    meter.rest(4 * MS)
    meter.step(1 * MS, 10 * MS, [0], -1, 0.0)
    assert meter.totals == {IDLE: 4 * MS, "bank": 6 * MS}


def test_what_is_charged_after_an_answer_is_told_once():
    meter = ComputeMeter(cores=1, slots=1, now_ns=0)
    meter.begin(0, "bank")
    meter.unrecorded(0, 5)
    meter.unrecorded(0, 6)
    assert meter.take_unrecorded() == {"bank": 11}
    assert meter.take_unrecorded() == {}


def test_tenants_without_end_share_one_total():
    meter = ComputeMeter(cores=1, slots=1, now_ns=0)
    for number in range(1200):
        meter.begin(0, f"tenant-{number}")
        meter.step(number * MS, (number + 1) * MS, [0], -1, 0.0)
    assert len(meter.totals) == 1001
    assert meter.totals[OTHER] > 200 * MS - 1


_STEP = st.tuples(
    st.integers(-5 * MS, 50 * MS),  # a gap, or clocks of two threads that cross
    st.integers(0, 30 * MS),
    st.sets(st.integers(0, 7)),
    st.integers(-1, 7),
    st.floats(0, 1),
)


@given(cores=st.integers(1, 64), steps=st.lists(_STEP, max_size=40))
def test_all_charges_sum_to_wall_time_times_cores_exactly(cores, steps):
    meter = ComputeMeter(cores, slots=8, now_ns=0)
    now = 0
    for number, (gap, took, rows, chunk, share) in enumerate(steps):
        meter.begin(number % 8, f"tenant-{number % 3}")
        started = now + gap
        now = max(now, started + took)
        charge = meter.step(started, started + took, sorted(rows - {chunk}), chunk, share)
        assert charge.row_ns >= 0
        assert charge.chunk_ns >= 0
    meter.rest(now + MS)
    assert sum(meter.totals.values()) == meter.wall_ns * cores == (now + MS) * cores


_DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 7), st.sampled_from(["bank", "shop", "mill"])),
        st.tuples(st.just("rest"), st.integers(0, 9 * MS)),
        st.tuples(st.just("look")),
        st.tuples(st.just("rows"), st.integers(1, 9)),  # steps with the rows of the one before
        st.tuples(st.just("others"), st.sets(st.integers(0, 7)).map(sorted).map(tuple)),
        st.tuples(st.just("chunk"), st.integers(-1, 7), st.floats(0, 1)),
    ),
    max_size=60,
)


@given(st.integers(1, 64), _DEEDS, st.randoms(use_true_random=False))
def test_who_is_charged_is_the_same_whenever_steps_are_added_up(cores, deeds, draw):
    meter, plain = ComputeMeter(cores, slots=8, now_ns=0), specification.ComputeMeter(cores, 8, 0)
    now, rows = 0, tuple[int, ...]()
    for deed, *given_ in deeds:
        if deed == "begin":
            meter.begin(*given_)
            plain.begin(*given_)
        elif deed == "rest":
            meter.rest(now + given_[0])
            plain.rest(now + given_[0])
        elif deed == "look":
            assert meter.totals == plain.totals
        elif deed == "others":
            rows = given_[0]
        for _ in range(given_[0] if deed == "rows" else deed == "chunk"):
            started = now + draw.randrange(-2 * MS, 3 * MS)
            now = max(now, started + draw.randrange(5 * MS))
            if deed == "rows":
                assert meter.rows(started, now, rows) == plain.rows(started, now, rows)
            else:
                charge = meter.step(started, now, rows, *given_)
                assert (charge.row_ns, charge.chunk_ns) == plain.step(started, now, rows, *given_)
    assert meter.totals == plain.totals
    assert meter.wall_ns == plain.until_ns


@pytest.mark.parametrize("given_", [(), (1, 2), (1, 2, "3"), (1, 2, 3, 0.5)])
def test_rows_are_charged_for_whole_numbers(given_):
    with pytest.raises(TypeError):
        ComputeMeter(1, 1, 0).rows_ns(*given_)


@pytest.mark.parametrize("given_", [(1, 2, 3), (1, 2, 3, "all"), (1, "2", 3, 0.5)])
def test_a_step_is_split_by_a_share(given_):
    with pytest.raises(TypeError):
        ComputeMeter(1, 1, 0).split_ns(*given_)


def test_a_page_names_a_hundred_tenants_and_one_more_for_the_rest():
    totals = {IDLE: 5, **{f"tenant-{number}": 1 for number in range(300)}, OTHER: 7}
    shown = labelled(totals)
    assert len(shown) == 102
    assert shown[IDLE] == 5
    assert shown[OTHER] == 200 + 7
    assert sum(shown.values()) == sum(totals.values())


def test_who_is_named_stays_named_when_others_come():
    few = {f"tenant-{number}": number for number in range(100)}
    many = {**few, "late": 1_000_000}
    assert labelled(few) == few
    assert {name: spent for name, spent in labelled(many).items() if name != OTHER} == few
