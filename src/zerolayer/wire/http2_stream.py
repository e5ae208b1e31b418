"""One stream of an HTTP/2 connection, and the table of its states (RFC 9113 section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import Final

from zerolayer.wire._native import StreamBase


class State(IntEnum):
    """States that a server's stream is kept in; a closed one is forgotten, an idle one does not exist yet."""

    OPEN = auto()  # the request is not complete
    HALF_CLOSED_REMOTE = auto()  # it is, and the reply is not
    CLOSED = auto()


class Step(IntEnum):
    """What moves a stream."""

    END_RECEIVED = auto()
    END_SENT = auto()
    RESET = auto()


# For every request: a member of an enumeration is dearer to name.
OPEN: Final = State.OPEN
END_RECEIVED: Final = Step.END_RECEIVED
END_SENT: Final = Step.END_SENT

# A reply that ends before its request does closes the stream: the server then asks for no more with RST_STREAM
# (section 8.1), so "half-closed (local)" is never waited in.
NEXT: Final[Mapping[tuple[State, Step], State]] = {
    (State.OPEN, Step.END_RECEIVED): State.HALF_CLOSED_REMOTE,
    (State.OPEN, Step.END_SENT): State.CLOSED,
    (State.OPEN, Step.RESET): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.END_SENT): State.CLOSED,
    (State.HALF_CLOSED_REMOTE, Step.RESET): State.CLOSED,
}

COMPLETE: Final = NEXT[OPEN, END_RECEIVED]
CLOSED: Final = NEXT[COMPLETE, END_SENT]
_FROM: Final = {state: {step: after for (before, step), after in NEXT.items() if before is state} for state in State}


class Stream(StreamBase):
    """``declared`` is the request's content-length. ``window`` is what may be sent, ``room`` what may be received.

    ``body`` is what came in several frames; ``incremental``: it is handed out as it comes, ``refused``: it is dropped.
    ``pending`` waits for a window, and ``ending`` is how the stream ends when nothing is pending: a block of trailers,
    or empty.
    """

    __slots__ = ()

    def move(self, step: Step) -> State:
        """Take ``step``; a step that the table lacks leaves the state as it is."""
        self.state = _FROM[self.state].get(step, self.state)
        return self.state
