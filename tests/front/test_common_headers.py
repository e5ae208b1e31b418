"""What every reply says, whichever protocol carries it."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zerolayer.front.common_headers import CommonHeaders
from zerolayer.wire import http1_reply, http2_reply

OWN_ID = b"0123456789abcdef0123"


def pairs_of_http1(lines: bytes) -> list[tuple[str, str]]:
    assert lines.endswith(b"\r\n")
    return [tuple(line.split(": ", 1)) for line in lines.decode().split("\r\n")[:-1]]


def pairs_of_http2(block: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in hpack.Decoder().decode(block)]


PROTOCOLS = [
    pytest.param(http1_reply.header, pairs_of_http1, id="HTTP/1.1"),
    pytest.param(http2_reply.header, pairs_of_http2, id="HTTP/2"),
]


class Load:
    """Changes when told to; 37 bytes, whose length HTTP/2 writes as a percent sign."""

    now = b"free=12;next_ms=0;derate=1.0;epoch=7%"

    def __call__(self) -> bytes:
        return self.now


@pytest.mark.parametrize(("spell", "pairs"), PROTOCOLS)
@pytest.mark.parametrize("request_id", [OWN_ID, b"mine", b"x" * 128])
def test_every_reply_names_the_server_the_time_the_request_and_the_load(spell, pairs, request_id):
    common = CommonHeaders(spell, "1.0", lambda: 1_700_000_000.25, Load(), frozenset())
    assert dict(pairs(common.of(request_id))) == {
        "server": "zerolayer/1.0",
        "x-server-time": "1700000000.250000",
        "x-request-id": request_id.decode(),
        "x-zl-load": Load.now.decode(),
    }


@pytest.mark.parametrize(("spell", "pairs"), PROTOCOLS)
def test_the_load_is_the_present_one(spell, pairs):
    load = Load()
    common = CommonHeaders(spell, "1.0", lambda: 1.7e9, load, frozenset())
    common.of(OWN_ID)
    load.now = b"free=0"
    assert dict(pairs(common.of(OWN_ID)))["x-zl-load"] == "free=0"


@pytest.mark.parametrize(("spell", "pairs"), PROTOCOLS)
def test_only_pages_that_may_call_are_told_so(spell, pairs):
    common = CommonHeaders(spell, "1.0", lambda: 1.7e9, Load(), frozenset({b"https://a"}))
    assert dict(pairs(common.of(OWN_ID, origin=b"https://a")))["access-control-allow-origin"] == "https://a"
    other = dict(pairs(common.of(OWN_ID, origin=b"https://b")))
    assert "access-control-allow-origin" not in other
    assert other["vary"] == "origin"


@pytest.mark.parametrize(("spell", "pairs"), PROTOCOLS)
def test_a_dialect_has_its_own_name_for_the_request(spell, pairs):
    common = CommonHeaders(spell, "1.0", lambda: 1.7e9, Load(), frozenset())
    assert dict(pairs(common.of(OWN_ID, b"request-id")))["request-id"] == OWN_ID.decode()


@given(st.floats(0, 4e9), st.lists(st.binary(min_size=1, max_size=40).map(bytes.hex).map(str.encode), min_size=1))
@example(1_700_000_000.0000005, [OWN_ID])
@example(0.9999999, [b"a", b"bc", b"a", OWN_ID])
def test_the_time_has_six_decimals_and_names_may_have_any_length(wall_s, names):
    common = CommonHeaders(http1_reply.header, "1.0", lambda: wall_s, Load(), frozenset())
    seconds, microseconds = divmod(round(wall_s * 1_000_000), 1_000_000)
    for name in names:
        told = dict(pairs_of_http1(common.of(name)))
        assert (told["x-server-time"], told["x-request-id"]) == (f"{seconds}.{microseconds:06d}", name.decode())


@pytest.mark.parametrize(
    ("wall_s", "load", "name"),
    [(-1.0, b"l", OWN_ID), (float("nan"), b"l", OWN_ID), (1e13, b"l", OWN_ID), (None, b"l", OWN_ID), (1.0, "l", OWN_ID),
     (1.0, b"l", "id")],
)  # fmt: skip
def test_what_is_no_time_load_or_name_is_refused(wall_s, load, name):
    given = [b"l", b"l"]
    common = CommonHeaders(http1_reply.header, "1.0", lambda: wall_s, lambda: given[-1], frozenset())
    given.append(load)
    with pytest.raises((TypeError, ValueError)):
        common.usual(name)


def test_headers_that_were_not_begun_tell_nothing():
    with pytest.raises(TypeError):
        CommonHeaders.__new__(CommonHeaders).usual(OWN_ID)
