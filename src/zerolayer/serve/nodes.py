"""A node among others: what it says of itself, and the list of nodes that it keeps and tells."""

from __future__ import annotations

import ssl
import time
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Final

import msgspec

from zerolayer.cluster.directory import Directory
from zerolayer.cluster.membership import Listed, NodeList, State
from zerolayer.cluster.neighbours import Neighbours
from zerolayer.cluster.question import Asker
from zerolayer.contract import Contract
from zerolayer.contract_listen import Listen
from zerolayer.errors import Unavailable
from zerolayer.guard.guard import Guard
from zerolayer.serve.address import own_address
from zerolayer.serve.fleet import node_key

if TYPE_CHECKING:
    from zerolayer.guard.deadline.calendar import Calendar
    from zerolayer.model.derating import Derating

_LOOK_NS: Final = 2_000_000_000
_LEAVING: Final = "the server is shutting down; send the request again in a moment"
_ELSEWHERE: Final = "the server is shutting down; the header x-zl-peers names servers that take the request now"
_PEERS: Final = 8


class NodeBook:
    """Owns the list; ``serve`` before anything else. All methods run on the loop.

    Raises ``StartupError`` for peers that cannot be read.
    """

    def __init__(self, contract: Contract, derating: Derating, helper: Executor) -> None:
        self._contract = contract
        self._guard: Guard  # of the model that is served, from ``serve`` on
        self._calendar: Calendar
        self._model, self._slots = "", 0
        self._directory = _directory(contract)
        self._key = node_key(contract.tenants)
        self._neighbours: Neighbours | None = None
        self._said = Listed("", "")
        self._derating = derating
        self._helper = helper
        self._looking: Future[float] | None = None
        self._looked_ns = 0
        self.derate = 1.0
        self.tail = b";derate=1.00;epoch=0"  # of x-zl-load, made when it changes and not for every reply

    @property
    def own(self) -> bytes:
        """The address of this node, as others reach it; empty before there is one."""
        return self._said.address.encode("ascii", "replace")

    def serve(self, model: str, guard: Guard, slots: int) -> None:
        """From now on this node serves another model."""
        self._model, self._guard, self._calendar, self._slots = model, guard, guard.slots, slots

    def start(self, port: int) -> None:
        """The service listens on ``port``: look for others."""
        address = own_address(self._contract, port)
        self._said = Listed(address, State.UNREADY.value)
        asker = Asker(address, self._key, _tls(self._contract.listen))
        self._neighbours = Neighbours(self._directory, asker, lambda: self._said, time.monotonic_ns)
        self._neighbours.start()
        self.sweep(time.monotonic_ns())

    def sweep(self, now_ns: int) -> None:
        """Several times a second: what this node says of itself, and the tail of ``x-zl-load``."""
        self._look(now_ns)
        neighbours = self._neighbours
        if neighbours is None:
            return
        was, self._said = self._said, self._say()
        if self._said.state != was.state:
            neighbours.changed()
        self.tail = b";derate=%.2f;epoch=%d" % (self.derate, neighbours.view.epoch)

    def _look(self, now_ns: int) -> None:
        """Ask the sensors off the loop, where there are any; what they say counts a moment later."""
        looking = self._looking
        if looking is not None and looking.done():
            self._looking = None
            self.derate = self.derate if looking.cancelled() else looking.result()
        if self._looking is None and self._derating.watches and now_ns - self._looked_ns >= _LOOK_NS:
            self._looked_ns = now_ns
            self._looking = self._helper.submit(self._derating.look)

    def announced(self, address: str, proven: bool) -> None:
        """Another node told its address; ``proven``: with a node's key or a certificate."""
        if self._neighbours is not None:
            self._neighbours.announced(address, proven=proven)

    def body(self) -> bytes:
        """The list, for ``GET /v1/nodes``."""
        own = self._say()
        view = NodeList(0, own.address, (own,)) if self._neighbours is None else self._neighbours.view
        nodes = tuple(own if node.address == own.address else node for node in view.nodes)
        return msgspec.json.encode(msgspec.structs.replace(view, nodes=nodes))

    def counts(self) -> dict[str, int]:
        """How many nodes there are in each state, this one included."""
        view = NodeList(0, "", (self._say(),)) if self._neighbours is None else self._neighbours.view
        states = [node.state for node in view.nodes]
        return {state.value: states.count(state.value) for state in State}

    def leaving(self) -> Unavailable:
        """What new work is told while this node drains: who else takes it, the one that would start it first first."""
        peers = () if self._neighbours is None else self._neighbours.elsewhere(_PEERS)
        return Unavailable(_ELSEWHERE if peers else _LEAVING, peers=peers)

    def move_out(self) -> None:
        """Another process is this node now, and nobody is to hear that it leaves."""
        self.close()
        self._neighbours = None

    def close(self) -> None:
        """No more questions."""
        if self._neighbours is not None:
            self._neighbours.close()

    def _say(self) -> Listed:
        state = State.READY if self._guard.closed is None else State.UNREADY
        return Listed(
            self._said.address,
            state.value,
            self._model,
            self._slots,
            self._calendar.open,
            self._calendar.next_open_ms(),
            self.derate,
            0,
        )


def _directory(contract: Contract) -> Directory:
    """Most nodes are alone and start without the resolver and its like. Raises ``StartupError``."""
    if not contract.cluster.peers:
        return Directory(())
    from zerolayer.cluster.sources import sources

    return Directory(sources(contract.cluster.peers))


def _tls(listen: Listen) -> ssl.SSLContext | None:
    """Where clients show certificates, nodes show theirs to one another."""
    if not listen.certificate:
        return None
    context = ssl.create_default_context()
    if listen.client_ca:
        context.load_verify_locations(listen.client_ca)
        context.load_cert_chain(listen.certificate, listen.key, password="")  # there is nobody to ask
    return context
