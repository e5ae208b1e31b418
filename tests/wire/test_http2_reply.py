"""Prepared header blocks say what the same headers say, read by another implementation of HPACK."""

from __future__ import annotations

import hpack
import pytest

from zerolayer.wire.http2_reply import later_block


@pytest.mark.parametrize(
    ("ms", "seconds", "ticket"), [(1, b"1", ""), (1001, b"2", "t1"), (123_456_789, b"123457", "t" * 200)]
)
def test_a_refusal_that_passes_says_when_to_come_back_and_by_which_ticket(ms, seconds, ticket):
    block = later_block(ms, ticket)
    told = {b"retry-after-ms": b"%d" % ms, b"retry-after": seconds, b"x-should-retry": b"true"}
    if ticket:
        told[b"x-zl-ticket"] = ticket.encode()
    assert dict(hpack.Decoder().decode(block, raw=True)) == told


@pytest.mark.parametrize("ticket", ["a\r\nevil: 1", "a\n", "\u00e9"])
def test_a_ticket_that_is_no_header_is_never_written(ticket):
    with pytest.raises(ValueError, match=r"line break|ascii"):
        later_block(7, ticket)
