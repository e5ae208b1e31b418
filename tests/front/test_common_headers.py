"""What every reply says, whichever protocol carries it."""

from __future__ import annotations

import hpack
import pytest

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
