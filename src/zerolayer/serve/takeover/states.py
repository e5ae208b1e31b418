"""A takeover as two tables: where each process is, what happens to it, and what it does then. Pure.

Who serves is decided once, by the old process, when it answers ``Ready`` with ``Go``: before, it goes on serving
whatever becomes of the new one; after, the new one serves whatever becomes of the old one. And while the old one is
still there it takes the service back from a new one that dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Old(Enum):
    """The process that serves."""

    GREETING = "greeting"  # somebody is there and has said nothing yet
    WAITING = "waiting"  # for the new process's model
    FREEZING = "freezing"  # nothing is read any more; clients that are held for moments get their slots
    OFFERED = "offered"  # the estate is sent, nothing is written any more
    DRAINING = "draining"  # the new one serves
    OVER = "over"  # it serves, and nobody takes over
    GONE = "gone"  # everything is handed over


class New(Enum):
    """The process that takes over."""

    ASKING = "asking"
    LOADING = "loading"
    TAKING = "taking"
    READY = "ready"  # could accept
    SERVING = "serving"  # and the old one drains
    ALONE = "alone"
    FAILED = "failed"


class Event(Enum):
    """What happens to either."""

    HELLO = "hello"
    UNFIT = "unfit"  # a message that does not belong here, another version, other addresses
    WELCOME = "welcome"
    REFUSED = "refused"
    TAKE = "take"
    FROZEN = "frozen"
    ESTATE = "estate"
    READY = "ready"
    GO = "go"
    QUIET = "quiet"  # nothing runs any more
    LOST = "lost"  # the other process is gone, or hangs
    DIED = "died"  # it is known not to live any more


class Action(Enum):
    """What it does then."""

    NOTHING = "nothing"
    WELCOME = "welcome"
    REFUSE = "refuse"
    FREEZE = "freeze"
    OFFER = "offer"
    GO = "go"
    LEAVE = "leave"
    RESUME = "resume"  # serve as before
    LOAD = "load"
    ADOPT = "adopt"
    SERVE = "serve"
    SETTLE = "settle"  # with what the old one left
    FAIL = "fail"


OLD: Final[Mapping[tuple[Old, Event], tuple[Old, Action]]] = {
    (Old.GREETING, Event.HELLO): (Old.WAITING, Action.WELCOME),
    (Old.WAITING, Event.TAKE): (Old.FREEZING, Action.FREEZE),
    (Old.FREEZING, Event.FROZEN): (Old.OFFERED, Action.OFFER),
    (Old.OFFERED, Event.READY): (Old.DRAINING, Action.GO),
    (Old.DRAINING, Event.QUIET): (Old.GONE, Action.LEAVE),
    (Old.GREETING, Event.UNFIT): (Old.OVER, Action.REFUSE),
    (Old.WAITING, Event.UNFIT): (Old.OVER, Action.REFUSE),
    (Old.GREETING, Event.LOST): (Old.OVER, Action.NOTHING),
    (Old.WAITING, Event.LOST): (Old.OVER, Action.NOTHING),
    (Old.FREEZING, Event.UNFIT): (Old.OVER, Action.RESUME),
    (Old.FREEZING, Event.LOST): (Old.OVER, Action.RESUME),
    (Old.OFFERED, Event.UNFIT): (Old.OVER, Action.RESUME),
    (Old.OFFERED, Event.LOST): (Old.OVER, Action.RESUME),
    (Old.DRAINING, Event.LOST): (Old.OVER, Action.RESUME),
}
"""What is not in it changes nothing."""

NEW: Final[Mapping[tuple[New, Event], tuple[New, Action]]] = {
    (New.ASKING, Event.WELCOME): (New.LOADING, Action.LOAD),
    (New.LOADING, Event.TAKE): (New.TAKING, Action.NOTHING),
    (New.TAKING, Event.ESTATE): (New.READY, Action.ADOPT),
    (New.READY, Event.GO): (New.SERVING, Action.SERVE),
    (New.READY, Event.DIED): (New.ALONE, Action.SERVE),  # it cannot have said no, and nobody else serves
    (New.SERVING, Event.QUIET): (New.ALONE, Action.SETTLE),
    (New.SERVING, Event.LOST): (New.ALONE, Action.SETTLE),
    **{
        (state, event): (New.FAILED, Action.FAIL)
        for state in (New.ASKING, New.LOADING, New.TAKING, New.READY)
        for event in (Event.REFUSED, Event.UNFIT, Event.LOST)
    },
}
"""As above."""
