"""The side of the process that takes over (``states.NEW``): asks, loads its model, takes, serves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import zerolayer
from zerolayer.errors import TakeoverFailed, system_reason
from zerolayer.guard.budget.succession import Inheritance, Settled
from zerolayer.guard.deadline.succession import Predecessor, take_on
from zerolayer.serve.admin_place import fits
from zerolayer.serve.takeover.channel import Channel
from zerolayer.serve.takeover.clocks import ahead_ns, clocks
from zerolayer.serve.takeover.messages import (
    Connections,
    Drained,
    Estate,
    Go,
    Hello,
    Message,
    Ready,
    Refused,
    Slots,
    Take,
    Welcome,
)
from zerolayer.serve.takeover.service import Service
from zerolayer.serve.takeover.states import NEW, Action, Event, New

_log = logging.getLogger("zerolayer.serve")

_ANSWER_S: Final = 10.0
_ESTATE_S: Final = 30.0
_DYING_S: Final = 2.0
_EVENTS: Final[Mapping[type[Message], Event]] = {
    Welcome: Event.WELCOME,
    Refused: Event.REFUSED,
    Estate: Event.ESTATE,
    Go: Event.GO,
}


class NewProcess:
    """``path`` is the admin socket of the server that is taken over. Raises ``TakeoverFailed``, here and later."""

    def __init__(self, path: Path, addresses: Mapping[str, str]) -> None:
        self.state = New.ASKING
        self._pidfd = -1
        self._sockets: dict[str, list[socket.socket]] = {}
        self._estate: Estate | None = None
        self._channel = Channel(_connect(path))
        self._clocks = clocks()
        self._channel.send(Hello(zerolayer.__version__, self._clocks, dict(addresses)))
        welcome = self._hear(_ANSWER_S)[0]
        if not isinstance(welcome, Welcome):
            raise self._failed("the running server does not answer as one that can be taken over")
        self._ahead_ns = ahead_ns(self._clocks, welcome.clocks)
        self.manager = welcome.manager
        self._pidfd = _pidfd(welcome.pid)

    @property
    def serves(self) -> bool:
        """Whether this process serves, and not the one before it."""
        return self.state in (New.SERVING, New.ALONE)

    @property
    def has_company(self) -> bool:
        """Whether this process serves while the one before it ends its replies. Should this one die, that serves on."""
        return self.state is New.SERVING

    def give_sockets(self) -> dict[str, list[socket.socket]]:
        """What is listened on, by name; the caller owns it from now on."""
        given, self._sockets = self._sockets, {}
        return given

    def take(self) -> None:
        """The model is loaded and warm: ask for everything. From here on the old process reads nothing."""
        self.state, _ = NEW[self.state, Event.TAKE]
        self._channel.send(Take())
        estate, descriptors = self._hear(_ESTATE_S)
        if not isinstance(estate, Estate):
            raise self._failed("the running server sent something else than what it has")
        self._estate = estate
        for name, descriptor in zip(estate.listeners, descriptors, strict=True):
            self._sockets.setdefault(name, []).append(socket.socket(fileno=descriptor))

    def adopt(self, server: Service) -> None:
        """Promises, budgets and the slots that are still in use over there become the server's."""
        estate = self._estate
        if estate is None:
            raise self._failed("nothing was taken")
        now, ahead = time.monotonic_ns(), self._ahead_ns
        self._server = server
        self._predecessor = Predecessor(server.room.admission.calendar, server.room.cost.prices)
        self._predecessor.update([end + ahead for end in estate.ends_ns], now)
        given = estate.engagements.moved(ahead)
        booked = take_on(server.room.admission, given, server.room.guard.work)
        if booked < len(given.promises):
            _log.warning("%d bookings could not be taken over", len(given.promises) - booked)
        self._inheritance = Inheritance(server.book.budgets, estate.legacies)
        server.room.pace.deafen(estate.asked_ns + ahead)  # until the old one's connections are here

    def ready(self) -> None:
        """Returns once this process serves, and no other one does."""
        self._channel.send(Ready())
        self._hear(_ESTATE_S)

    def serve(self) -> None:
        """On the loop, once the listeners accept: connections and news of the old process, until it is gone."""
        if self.state is New.ALONE:
            self._settle(all_used=True)
        else:
            self._channel.attach(asyncio.get_running_loop(), self._on_message, self._on_lost)

    def close(self) -> None:
        """No more news."""
        self._channel.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    # Before it serves.

    def _hear(self, seconds: float) -> tuple[Message | None, list[int]]:
        """The next message, if it is one that may come now; None where the old process died and this one may serve."""
        found = self._channel.ask(seconds)
        if found is None:
            event = Event.DIED if self.state is New.READY and self._has_died() else Event.LOST
            message, descriptors = None, list[int]()
        else:
            message, descriptors = found
            event = _EVENTS.get(type(message), Event.UNFIT)
        self.state, action = NEW.get((self.state, event), (New.FAILED, Action.FAIL))
        if action is Action.FAIL:
            why = message.why if isinstance(message, Refused) else "it is gone, or does not answer"
            raise self._failed(f"the running server was not taken over: {why}")
        return message, descriptors

    def _has_died(self) -> bool:
        """Whether the old process is no more. One that lives has kept the service, or will."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(_DYING_S * 1000))

    def _failed(self, why: str) -> TakeoverFailed:
        self.close()
        for sockets in self._sockets.values():
            for listening in sockets:
                listening.close()
        return TakeoverFailed(why)

    # While the old process drains.

    def _on_message(self, message: Message, descriptors: Sequence[int]) -> None:
        if isinstance(message, Connections):
            for descriptor in descriptors:
                self._server.entrances.take(socket.socket(fileno=descriptor))
            if message.first:
                asyncio.get_running_loop().call_soon(self._server.room.pace.deafen, None)
        elif isinstance(message, Slots):
            ends = [end + self._ahead_ns for end in message.ends_ns]
            self._predecessor.update(ends, time.monotonic_ns())
        elif isinstance(message, Settled):
            self._inheritance.settled(message)
        elif isinstance(message, Drained) and self.state is New.SERVING:
            self.state, _ = NEW[self.state, Event.QUIET]
            self._settle(all_used=False)

    def _on_lost(self, why: str) -> None:
        if self.state is New.SERVING:
            _log.warning("the process that was taken over is gone before its replies were complete %s", why)
            self.state, _ = NEW[self.state, Event.LOST]
            self._settle(all_used=True)

    def _settle(self, *, all_used: bool) -> None:
        """Nothing of the old process is left but its records, which the server joins by itself."""
        self._predecessor.over(time.monotonic_ns())
        self._inheritance.over(all_used=all_used)
        self._server.room.pace.deafen(None)
        _log.info("the process that was taken over has ended")


def _connect(path: Path) -> socket.socket:
    if not fits(path):
        raise TakeoverFailed(f"{path} is too long for a socket. Give --takeover a shorter path, as by a link.")
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(_ANSWER_S)
    try:
        connected.connect(str(path))
    except OSError as error:
        connected.close()
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            raise TakeoverFailed(
                f"no server listens at {path}. Start without --takeover, or name the socket that the running server "
                "prints as `takeover` when it starts."
            ) from None
        raise TakeoverFailed(
            f"{path} cannot be connected to ({system_reason(error)}). Run the new server "
            "as the user of the old one."
        ) from None
    return connected


def _pidfd(pid: int) -> int:
    """-1 where the process is not to be seen from here."""
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return -1
