"""What requests say about their time, in every dialect; the smallest source counts for each limit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer.errors import DeadlineExpired, InvalidRequest
from zerolayer.guard.deadline.limits import of_contract, read_limits

CONTRACT = of_contract(5_000, 250, 60_000)
MS = 1_000_000
HEADERS = [
    "x-slo-ttft-ms",
    "x-llm-d-slo-ttft-ms",
    "x-llm-d-inference-ttl",
    "x-slo-tpot-ms",
    "x-llm-d-slo-tpot-ms",
    "x-zl-deadline-ms",
    "grpc-timeout",
    "x-stainless-timeout",
    "x-stainless-read-timeout",
]


def _read(deadline_ms: float | None = None, stream: bool = False, **headers: str) -> tuple[float, float, float]:
    table = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    limits = read_limits(table.get, deadline_ms=deadline_ms, stream=stream, contract=CONTRACT)
    return limits.first_token_ns / MS, limits.per_token_ns / MS, limits.end_ns / MS


def test_the_contract_speaks_where_the_request_does_not():
    assert _read() == (5_000, 250, 60_000)


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("x_slo_ttft_ms", "200", (200, 250, 60_000)),
        ("x_llm_d_slo_ttft_ms", "200.5", (200.5, 250, 60_000)),
        ("x_llm_d_inference_ttl", "1m1.5s20ms", (61_520, 250, 60_000)),
        ("x_slo_tpot_ms", "30", (5_000, 30, 60_000)),
        ("x_llm_d_slo_tpot_ms", "30", (5_000, 30, 60_000)),
        ("x_zl_deadline_ms", "1500", (5_000, 250, 1_500)),
        ("grpc_timeout", "10S", (5_000, 250, 9_799)),  # less 2 % and a millisecond: clients round up
        ("x_stainless_timeout", "30", (5_000, 250, 30_000)),
        ("x_stainless_read_timeout", "30.0", (5_000, 250, 30_000)),
    ],
)
def test_each_source_sets_its_own_limit(header, value, expected):
    assert _read(**{header: value}) == expected


GO = {  # of the tests of Go's own time.ParseDuration, in milliseconds
    "5s": 5_000, "+5s": 5_000, "5.0s": 5_000, "5.6s": 5_600, "5.s": 5_000, ".5s": 500, "1.0040s": 1_004, "15m": 900_000,
    "12us": 0.012, "12\u00b5s": 0.012, "12\u03bcs": 0.012, "1100us": 1.1, "13ms": 13, "52763797000ns": 52_763.797,
    "16h": 57_600_000, "3h30m": 12_600_000, "10.5s4m": 250_500, "1h2m3s4ms5us6ns": 3_723_004.005006,
    "0.3333333333333333333h": 1_200_000, "0.100000000000000000000h": 360_000, "9223372036854775807ns": 86_400_000,
}  # fmt: skip


@pytest.mark.parametrize("given", GO)
def test_a_duration_is_read_in_every_form_that_go_reads(given):
    assert _read(x_llm_d_inference_ttl=given)[0] == pytest.approx(GO[given], abs=1e-6)


@pytest.mark.parametrize(
    "given", ["", "3", "-", "s", ".", "-.", ".s", "+.s", "1d", "--1s", "1s-1s", "1s 1s", "1 s", "1e3s", "\u0661s"]
)
def test_what_go_does_not_read_as_a_duration_is_400(given):
    with pytest.raises(InvalidRequest):
        _read(x_llm_d_inference_ttl=given)


@pytest.mark.parametrize("header", ["x_stainless_timeout", "x_stainless_read_timeout"])
@pytest.mark.parametrize("unset", ["NOT_GIVEN", "None"])
def test_a_timeout_that_an_sdk_prints_as_unset_is_none(header, unset):
    assert _read(**{header: unset}) == _read()


def test_the_body_sets_the_end():
    assert _read(deadline_ms=700) == (5_000, 250, 700)


def test_the_smallest_source_counts_for_each_limit():
    assert _read(deadline_ms=700, x_zl_deadline_ms="900", x_stainless_timeout="0.8")[2] == 700
    assert _read(x_slo_ttft_ms="90", x_llm_d_slo_ttft_ms="80", x_llm_d_inference_ttl="1s")[0] == 80


def test_the_read_timeout_of_a_stream_bounds_its_gaps_and_not_its_end():
    assert _read(stream=True, x_stainless_read_timeout="0.2") == (200, 200, 60_000)


@pytest.mark.parametrize("header", ["x_stainless_timeout", "x_stainless_read_timeout"])
@pytest.mark.parametrize("value", ["600", "600.0"])
def test_the_default_of_an_sdk_counts_as_not_set(header, value):
    assert _read(**{header: value}) == (5_000, 250, 60_000)


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("value", ["abc", "", "1,5", "0x10", "\u0661", "inf", "nan", "5 S"])
def test_what_cannot_be_read_is_400_and_names_its_header(header, value):
    with pytest.raises(InvalidRequest) as refused:
        _read(**{header: value})
    assert refused.value.param == header


@pytest.mark.parametrize("header", [name for name in HEADERS if name not in ("grpc-timeout", "x-llm-d-inference-ttl")])
@pytest.mark.parametrize("value", ["0", "-1", "0.0"])
def test_a_deadline_that_has_passed_is_refused_and_never_taken_for_the_most_urgent(header, value):
    with pytest.raises(DeadlineExpired):
        _read(stream=True, **{header: value})


@pytest.mark.parametrize(
    ("header", "value"),
    [("grpc_timeout", "0n"), ("grpc_timeout", "1m"), ("x_llm_d_inference_ttl", "-3s"), ("x_llm_d_inference_ttl", "0")],
)
def test_so_is_one_in_other_dialects(header, value):
    with pytest.raises(DeadlineExpired):
        _read(**{header: value})


def test_only_a_deadline_of_the_request_itself_outlasts_an_attempt():
    def patience(**headers: str) -> int | None:
        table = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return read_limits(table.get, deadline_ms=None, stream=False, contract=CONTRACT).patience_ns

    assert patience(x_zl_deadline_ms="100") == 100 * MS
    assert patience(x_stainless_timeout="30") is None
    assert patience() is None


def test_what_a_request_sets_itself_is_used_up_by_its_upload_and_what_the_contract_promises_is_not():
    asked = read_limits({b"x-zl-deadline-ms": b"1500"}.get, deadline_ms=None, stream=False, contract=CONTRACT)
    left = asked.after(400 * MS)
    assert (left.first_token_ns, left.per_token_ns, left.end_ns) == (5_000 * MS, 250 * MS, 1_100 * MS)
    assert left.patience_ns == 1_100 * MS
    assert CONTRACT.after(400 * MS) is CONTRACT


@pytest.mark.parametrize("header", [b"x-zl-deadline-ms", b"x-slo-ttft-ms"])
def test_nothing_is_left_of_a_limit_when_its_time_has_passed(header):
    asked = read_limits({header: b"300"}.get, deadline_ms=None, stream=False, contract=CONTRACT)
    with pytest.raises(DeadlineExpired):
        asked.after(300 * MS)


def test_what_was_applied_is_echoed_in_milliseconds():
    table = {b"x-zl-deadline-ms": b"1500"}
    limits = read_limits(table.get, deadline_ms=None, stream=False, contract=CONTRACT)
    assert limits.header() == b"1500;first_token=5000;per_token=250"


@settings(deadline=None)
@given(st.sampled_from(HEADERS), st.binary(max_size=30), st.booleans())
def test_no_header_breaks_anything(header, value, stream):
    try:
        limits = read_limits({header.encode(): value}.get, deadline_ms=None, stream=stream, contract=CONTRACT)
    except (InvalidRequest, DeadlineExpired):
        return
    assert min(limits.first_token_ns, limits.per_token_ns, limits.end_ns) >= 0
