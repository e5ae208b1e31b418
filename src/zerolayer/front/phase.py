"""Where a connection of HTTP/1.1 is."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final


class Phase(IntEnum):
    """The limits that hold depend on it."""

    IDLE = auto()  # no byte of a next request
    HEAD = auto()
    BODY = auto()
    BUSY = auto()  # a complete request is being answered
    LINGER = auto()  # an error was sent early; what still comes is dropped until the client has read it
    CLOSED = auto()


READING: Final = frozenset({Phase.IDLE, Phase.HEAD, Phase.BODY})
# For every request: a member of an enumeration is dearer to name.
IDLE: Final = Phase.IDLE
BUSY: Final = Phase.BUSY
CLOSED: Final = Phase.CLOSED
