"""What a client sends again and again with a few values changed: its heads need not be parsed from the first byte.

Two heads that were parsed one after the other and differ in the values of some fields make a template: constant bytes
with holes in them. A later head whose bytes are those of the template, but for the holes, is the same head with other
values. Each protocol says how a value is read; what the values may do to a head is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from zerolayer.wire.http1_head import Head

HOLES: Final = 4  # more changes than that are no habit
LENGTH: Final = b"content-length"
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
_DIGITS: Final = 15
Known = TypeVar("Known")


class Hole(msgspec.Struct, frozen=True):
    """A value that changes: ``place`` is its header's in ``Head.headers``."""

    place: int
    name: bytes


class Template(msgspec.Struct, frozen=True):
    """``constants`` are one more than ``holes``. ``head`` is the first that had this form."""

    constants: tuple[bytes, ...]
    holes: tuple[Hole, ...]
    head: Head

    def filled(self, values: Sequence[bytes]) -> Head | None:
        """The head with these values, which are known to be well-formed; None where one says more than itself."""
        base = self.head
        headers, by_name, length = list(base.headers), base.values.copy(), base.content_length
        for hole, value in zip(self.holes, values, strict=True):
            name = hole.name
            headers[hole.place] = (name, value)
            by_name[name] = value
            if name == LENGTH:
                if len(value) > _DIGITS or not value.isdigit():
                    return None
                length = int(value)
        return Head(
            base.method,
            base.path,
            base.query,
            tuple(headers),
            base.minor,
            base.keep_alive,
            base.expects_continue,
            length,
            by_name,
            base,
        )


def holes(before: Head, places: Iterable[int], after: Head) -> tuple[Hole, ...] | None:
    """The headers in which two heads differ as holes of a template; None where they differ in more than values."""
    if b"expect" in before.values or len(before.headers) != len(after.headers):
        return None
    found = []
    for place in places:
        name = before.headers[place][0]
        if name != after.headers[place][0] or name in STEERING:
            return None
        if sum(name == other for other, _ in before.headers) > 1:
            return None  # which of them counts is not for a template to say
        found.append(Hole(place, name))
    return tuple(found) if 0 < len(found) <= HOLES else None


def remember(memory: dict[bytes, Known], key: bytes, value: Known, most: int) -> None:
    """Whoever sends something new each time must not make the server grow."""
    if len(memory) >= most:
        memory.clear()
    memory[key] = value
