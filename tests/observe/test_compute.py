"""Who pays for a core's time."""

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
