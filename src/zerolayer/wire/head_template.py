"""What a client sends again and again with a few values changed: its heads need not be parsed from the first byte.

Two heads that were parsed one after the other and differ in the values of some fields make a template: constant bytes
with holes in them. A later head whose bytes are those of the template, but for the holes, is the same head with other
values. How a value is read in each protocol is compiled (``_native.Template``); what the values may do to a head is
said here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from zerolayer.wire.http1_head import Head

HOLES: Final = 4  # more changes than that are no habit
# What decides where a head leads, who may send it, or how its body is framed. None of these is ever a hole, so that
# heads of one template share whatever follows from them.
STEERING: Final = frozenset(
    {
        b"host",
        b"origin",
        b"content-type",
        b"content-encoding",
        b"transfer-encoding",
        b"connection",
        b"expect",
        b"upgrade",
        b"te",
        b"trailer",
    }
)
SECRET: Final = frozenset({b"authorization", b"x-api-key", b"cookie", b"proxy-authorization"})
"""What lets somebody in."""
Known = TypeVar("Known")


def are_holes(before: Head, places: Sequence[int], after: Head) -> bool:
    """Whether the headers at ``places``, in which alone two heads differ, may be the holes of a template."""
    if b"expect" in before.values or len(before.headers) != len(after.headers):
        return False
    for place in places:
        name = before.headers[place][0]
        if name != after.headers[place][0] or name in STEERING:
            return False
        if sum(name == other for other, _ in before.headers) > 1:
            return False  # which of them counts is not for a template to say
    return 0 < len(places) <= HOLES


def remember(memory: dict[bytes, Known], key: bytes, value: Known, most: int) -> None:
    """Whoever sends something new each time must not make the server grow."""
    if len(memory) >= most:
        memory.clear()
    memory[key] = value
