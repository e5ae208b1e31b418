"""The side of the process that serves: one conversation with one that would take over (``states.OLD``)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import zerolayer
from zerolayer.errors import ZerolayerError
from zerolayer.serve.takeover.channel import Channel
from zerolayer.serve.takeover.clocks import clocks
from zerolayer.serve.takeover.leaving import Leaving
from zerolayer.serve.takeover.messages import (
    Connections,
    Drained,
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
from zerolayer.serve.takeover.states import OLD, Action, Event, Old

_log = logging.getLogger("zerolayer.serve")

_GREETING_S: Final = 10.0
_LOADING_S: Final = 3600.0  # a model of hundreds of gigabytes comes from a network
_HELD_S: Final = 0.25  # for clients whose slot is not quite free
_OFFERED_S: Final = 5.0  # until the new process could accept; nobody is read meanwhile
_LOOK_S: Final = 0.005
_TELL_S: Final = 0.05
_TIMES: Final[Mapping[Old, float]] = {
    Old.GREETING: _GREETING_S,
    Old.WAITING: _LOADING_S,
    Old.FREEZING: _HELD_S,
    Old.OFFERED: _OFFERED_S,
}
_REPLACING: Final = "a model is being deployed; take over when that is done"
_MOVING_IN: Final = (
    "its ledger or budgets are still with a process that did not take over; end that process, then take over again"
)
_EVENTS: Final[Mapping[type[Message], Event]] = {Take: Event.TAKE, Ready: Event.READY}


class Hearers(Protocol):
    """Who wants to know how it goes."""

    gone: asyncio.Event  # everything is handed over
    moved: asyncio.Event  # a step further
    on_serving: Callable[[int], None]  # gets the process that serves


class OldProcess:
    """``heirs`` hears who serves, and when everything is handed over."""

    def __init__(
        self,
        server: Service,
        connected: socket.socket,
        addresses: Mapping[str, str],
        manager: Mapping[str, str],
        grace_s: float,
        heirs: Hearers,
    ) -> None:
        self._server = server
        self._leaving = Leaving(server, self._settle)
        self._channel = Channel(connected)
        self._pid, self._uid = self._channel.peer
        self._addresses, self._manager = dict(addresses), dict(manager)
        self._grace_s = grace_s
        self._heirs = heirs
        self._loop = asyncio.get_running_loop()
        self.state = Old.GREETING
        self._why = ""  # nobody may take over
        self._told_ns = 0
        self._timer = self._loop.call_later(_GREETING_S, self._overdue)
        self._channel.attach(self._loop, self._on_message, self._on_lost)

    @property
    def over(self) -> bool:
        """Whether this process serves on, and another one may ask."""
        return self.state is Old.OVER

    @property
    def pid(self) -> int:
        """The process that would take over."""
        return self._pid

    def refuse(self, why: str) -> None:
        """Not now, or not at all."""
        self._why = why
        self._take(Event.UNFIT)

    # What happens.

    def _on_message(self, message: Message, _: list[int]) -> None:
        if isinstance(message, Hello) and self.state is Old.GREETING:
            self._why = self._misfit(message)
            self._take(Event.UNFIT if self._why else Event.HELLO)
        else:
            event = _EVENTS.get(type(message))
            if isinstance(message, Take) and self._server.moving_in:
                self.refuse(_MOVING_IN)
            elif event is None:
                self.refuse("a message came that has no place here")
            else:
                self._take(event)

    def _on_lost(self, why: str) -> None:
        if why:
            _log.warning("a process that would take over was turned away: %s", why)
        self._take(Event.LOST)

    def _overdue(self) -> None:
        self._take(Event.FROZEN if self.state is Old.FREEZING else Event.LOST)

    def _misfit(self, hello: Hello) -> str:
        if self._uid not in (0, os.geteuid()):
            return "it belongs to another user"
        if self._server.replacing:
            return _REPLACING
        for name, own in self._addresses.items():
            wanted = hello.addresses.get(name, "")
            if wanted != own:
                return (
                    f"the running server has {name} = {own or 'none'} and the new one {wanted or 'none'}; give the new "
                    "one the same, or stop the old one first"
                )
        return ""

    # What follows.

    def _take(self, event: Event) -> None:
        before = self.state
        self.state, action = OLD.get((before, event), (before, Action.NOTHING))
        if self.state is not before:
            self._timer.cancel()
            if self.state in _TIMES:
                self._timer = self._loop.call_later(_TIMES[self.state], self._overdue)
        self._ACTIONS[action](self)
        if self.state is Old.OVER:
            self._channel.close()
        self._heirs.moved.set()

    def _nothing(self) -> None:
        """The tables say so."""

    def _welcome(self) -> None:
        _log.info("another process is loading its model to take over", extra={"pid": self._pid})
        self._channel.send(Welcome(zerolayer.__version__, os.getpid(), clocks(), self._manager))

    def _refuse(self) -> None:
        _log.warning("a process may not take over: %s", self._why)
        self._channel.send(Refused(self._why))

    def _freeze(self) -> None:
        self._leaving.freeze()
        self._look_at_held()

    def _look_at_held(self) -> None:
        if self.state is Old.FREEZING:
            if self._leaving.settles():
                self._take(Event.FROZEN)
            else:
                self._loop.call_later(_LOOK_S, self._look_at_held)

    def _offer(self) -> None:
        try:
            estate, sockets = self._leaving.offer()
        except ZerolayerError as error:
            self._channel.send(Refused(f"the old server could not let go of its files: {error.message}"))
            self._take(Event.LOST)
            return
        self._channel.send(estate, [each.fileno() for each in sockets])

    def _go(self) -> None:
        self._channel.send(Go())
        self._heirs.on_serving(self._pid)
        _log.info("another process serves now; running replies have %g s", self._grace_s)
        self._leaving.go()
        self._move(first=True)
        self._leaving.drain()
        self._ends_at = self._loop.time() + self._grace_s
        self._look()

    def _look(self) -> None:
        """Until nothing is left: connections that rest move, and the other process hears what still runs."""
        if self.state is not Old.DRAINING:
            return
        self._move()
        now = time.monotonic_ns()
        if now - self._told_ns >= _TELL_S * 1e9:
            self._told_ns = now
            self._channel.send(Slots(self._leaving.ends_ns()))
        late = self._loop.time() - self._ends_at
        if late >= 0:
            self._leaving.cut()
        if late >= 0 or self._leaving.quiet(now):
            self._loop.call_soon(self._take, Event.QUIET)  # what was cut is settled by then
        else:
            self._loop.call_later(_LOOK_S, self._look)

    def _move(self, *, first: bool = False) -> None:
        while (descriptors := self._leaving.connections()) or first:
            self._channel.send(Connections(len(descriptors), first=first and not descriptors), descriptors, owned=True)
            if not descriptors:
                return

    def _settle(self, message: Message) -> None:
        self._channel.send(message)

    def _leave(self) -> None:
        self._channel.send(Drained())
        self._heirs.gone.set()

    def _resume(self) -> None:
        _log.warning("the process that took over is gone, or never began; this one serves on")
        if self._why:
            self._channel.send(Refused(self._why))
        self._leaving.resume()
        self._heirs.on_serving(os.getpid())

    _ACTIONS: Final[Mapping[Action, Callable[[OldProcess], None]]] = {
        Action.NOTHING: _nothing,
        Action.WELCOME: _welcome,
        Action.REFUSE: _refuse,
        Action.FREEZE: _freeze,
        Action.OFFER: _offer,
        Action.GO: _go,
        Action.LEAVE: _leave,
        Action.RESUME: _resume,
    }
