"""What a call does next, and what it is told of a reply. Times are monotonic nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from zerolayer.wire.load import Load


@dataclass(frozen=True)
class Send:
    """Ask ``node`` now; ``ticket`` redeems a booking."""

    node: str
    ticket: str | None = None


@dataclass(frozen=True)
class Wait:
    """Do nothing until the monotonic time ``until_ns``, or until the call is woken; then ask ``Call.next`` again."""

    until_ns: int


class GiveUp(Enum):
    """Why the last failure is the call's."""

    FINAL = "a retry cannot help"
    DEADLINE = "the next attempt would come too late"
    BUDGET = "too many calls were retried lately"


Step = Send | Wait | GiveUp


@dataclass(frozen=True)
class Head:
    """What of a reply's head matters here. ``wait_ms``: when to come back; ``retry``: what ``x-should-retry`` says."""

    status: int
    load: Load | None = None
    wait_ms: int | None = None
    retry: bool | None = None
    ticket: str | None = None
    server_wall_ns: int | None = None


@dataclass(frozen=True)
class Promise:
    """A start that a node has booked."""

    node: str
    at_ns: int
    ticket: str
