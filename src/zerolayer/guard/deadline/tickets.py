"""Who asks, from what clients say about themselves.

A promised start belongs to the same bytes from the same sender, or to whoever brings the ticket. Stock clients know
nothing of tickets; they send the same body again after the time that they were told (``native/deadline_tickets.hpp``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

_ATTEMPTS: Final = 2  # retries that stock SDKs make
_GRPC_ATTEMPTS: Final = 4  # and gRPC, at most

Name = str | bytes | int | tuple["Name", ...]
"""Of a sender, or of a request."""


class Asker(msgspec.Struct, frozen=True):
    """Who asks. ``retry`` is None when the client does not say whether it has asked before."""

    credential: Name
    retry: bool | None = None
    ticket: str | None = None
    last: bool = False  # it has no attempt left: nothing need be held for it
    reads_ms: bool = True  # else it is booked on a whole second, so that both headers say the same


def read_asker(headers: Mapping[bytes, bytes], credential: Name, named: str) -> Asker:
    """Who asks, from what clients say about themselves; our own come back until their time is over."""
    get = headers.get
    ticket, count = get(b"x-zl-ticket"), get(b"x-stainless-retry-count")
    retry, last = None, False
    if (waits := get(b"x-zl-retry-count")) is not None and waits.isdigit():
        retry = waits.strip(b"0") != b""
    elif count is not None and count.isdigit():
        retry, last = count != b"0", int(count[:4]) >= _ATTEMPTS
    elif get(b"content-type", b"").startswith(b"application/grpc"):
        attempts = get(b"grpc-previous-rpc-attempts", b"0")
        retry, last = attempts != b"0", attempts.isdigit() and int(attempts[:4]) >= _GRPC_ATTEMPTS
    reads_ms = (
        retry is not None
        or ticket is not None
        or named != ""
        or get(b"user-agent", b"").startswith(b"zerolayer")
        or any(name.startswith((b"x-stainless-", b"x-zl-")) for name in headers)
    )
    return Asker(credential, retry, named or (None if ticket is None else ticket.decode("latin-1")), last, reads_ms)
