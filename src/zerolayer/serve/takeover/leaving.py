"""What a server does while another process takes over from it; ``old.py`` says when.

Nothing is torn down before the new process serves: bookings, budgets and sockets stay as they were, so that to go on is
to begin to read again.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from zerolayer.errors import Unavailable
from zerolayer.front import moving
from zerolayer.front.exchange import Exchange
from zerolayer.front.held import ask_again
from zerolayer.guard.budget.succession import Bequest, Settled
from zerolayer.guard.deadline.succession import Engagements, engagements, take_on, typical_ends
from zerolayer.serve.takeover.messages import MOST_DESCRIPTORS, Estate
from zerolayer.serve.takeover.service import Service

_LAST_NS: Final = 250_000_000
_AGAIN_MS: Final = 50  # by then the connections that it could come on again have moved, or are closed


class Leaving:
    """The server's side. ``tell`` gets what is settled once the other process serves. On the loop."""

    def __init__(self, server: Service, tell: Callable[[Settled], None]) -> None:
        self._server = server
        self._tell = tell
        self._asked_ns = 0
        self._frozen = False
        self._moved_out = False
        self._left_ns = 0
        self._here: set[Exchange] = set()  # held clients, whose promises go along
        self._settled: list[Settled] = []  # before the other process serves
        self._out: Estate | None = None
        self._bequest: Bequest | None = None

    def freeze(self) -> None:
        """Read nothing more. Replies that run go on."""
        server, self._frozen = self._server, True
        self._asked_ns = time.monotonic_ns()
        server.room.pace.deafen(self._asked_ns)
        server.entrances.rest()

    def settles(self) -> bool:
        """Whether no client is held for a slot that was promised, and nobody who came is still to be read."""
        server = self._server
        server.entrances.hold(held=True)  # also those who were on their way when the others were
        return not (server.room.held or server.entrances.opening)

    def offer(self) -> tuple[Estate, list[socket.socket]]:
        """Everything, and the sockets that are listened on; from here on nothing is written but beside the ledger.

        Raises ``LedgerError``, and then nothing has changed.
        """
        server = self._server
        server.records.move_out()
        self._moved_out = True
        server.entrances.drop_opening()
        for exchange in server.room.held.let_go():  # what is promised twice would be kept twice
            self._here.add(exchange)
            exchange.on_gone = partial(self._here.discard, exchange)
        self._bequest = Bequest(server.book.budgets, self._settle)
        found = [(name, each) for name, sockets in server.entrances.sockets().items() for each in sockets]
        self._out = Estate(
            tuple(name for name, _ in found),
            engagements(server.room.admission, server.room.guard.chunk_tokens),
            self._bequest.legacies(),
            self.ends_ns(),
            self._asked_ns,
        )
        server.book.move_out()
        self._bequest.begin()
        return self._out, [each for _, each in found]

    def go(self) -> None:
        """The other process serves. What is being answered here is finished here."""
        server, self._left_ns = self._server, time.monotonic_ns()
        for message in self._settled:
            self._tell(message)
        for booking in server.room.admission.tickets:
            server.room.admission.void(booking)
        server.room.pace.deafen(None)
        server.nodes.move_out()
        moved = Unavailable(
            f"another process of this server takes the request; send it again in {_AGAIN_MS} ms",
            retry_after_ms=_AGAIN_MS,
        )
        server.room.guard.close(moved)
        server.grpc_health.end()
        for exchange in self._taken_back():
            exchange.error(moved)

    def connections(self) -> list[int]:
        """Descriptors of connections that rest, to be sent on; the caller closes them."""
        return moving.take(self._server.entrances.connections, MOST_DESCRIPTORS)

    def drain(self) -> None:
        """Connections that cannot move are ended by their next reply, or when they rest."""
        for connection in list(self._server.entrances.connections):
            if not connection.waits_to_move:
                connection.hold(held=False)
                connection.drain()

    def ends_ns(self) -> tuple[int, ...]:
        """When what runs ends, as a rule."""
        return typical_ends(self._server.room.admission.calendar, self._server.room.cost.prices(), time.monotonic_ns())

    def quiet(self, now_ns: int) -> bool:
        """Whether nothing is answered any more. Connections that cannot move may bring a last request for a moment."""
        server = self._server
        if server.room.admission.calendar.taken or server.room.held or server.entrances.busy:
            return False
        return not server.entrances.connections or now_ns - self._left_ns >= _LAST_NS

    def cut(self) -> None:
        """The time is up: what still runs ends with an error."""
        self._server.room.dispatcher.fail_all(
            Unavailable("the server was replaced before the reply was complete; send the request again")
        )

    def resume(self) -> None:
        """Serve as before: the other process is gone, or never began."""
        server = self._server
        if self._moved_out:
            server.move_in()
        if self._bequest is not None:
            self._bequest.end()
        if self._left_ns and self._out is not None:
            now = time.monotonic_ns()
            lapsed_ns = now - server.room.admission.calendar.grace_ns
            given = self._out.engagements
            server.room.pace.deafen(now)  # those who come for them wait in the kernel
            fresh = tuple(each for each in given.promises if each.start_ns > lapsed_ns)
            take_on(server.room.admission, Engagements(fresh, (), given.told_ns), server.room.guard.work)
            server.nodes.start(server.port)
            server.room.guard.close(None)
        if self._frozen:
            server.room.pace.deafen(None)
            server.entrances.start()
            server.entrances.hold(held=False)
        for exchange in self._taken_back():
            ask_again(exchange)

    def _taken_back(self) -> list[Exchange]:
        """Clients that were held and are still here."""
        here, self._here = list(self._here), set()
        for exchange in here:
            exchange.on_gone = None
        return here

    def _settle(self, message: Settled) -> None:
        if self._left_ns:
            self._tell(message)
        else:
            self._settled.append(message)
