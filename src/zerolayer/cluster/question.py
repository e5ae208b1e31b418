"""One question to one node: does it take work, how loaded is it, whom does it know. Blocking; runs on a thread."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from zerolayer.cluster.http_get import FAILURES, Connection
from zerolayer.cluster.membership import Listed, NodeList
from zerolayer.wire.load import Load

PATH: Final = "/v1/nodes"
NAME: Final = "x-zl-node"
"""What a node is called: on the reply of ``/readyz`` its own name, on a question the name of whoever asks."""
_TIMEOUT_S: Final = 1.0  # for all that is said to one node at a time
_BODY_BYTES: Final = 1 << 20
_HEADER_CHARACTERS: Final = 300
_NAME_CHARACTERS: Final = 256
_list = msgspec.json.Decoder(NodeList)


@dataclass(frozen=True)
class Word:
    """What a node said. ``nodes`` is None where its list was not asked for, or not given."""

    ready: bool
    says: str
    load: Load
    nodes: NodeList | None

    def of(self, said: Listed) -> Listed:
        """As a line of the list; ``said`` is what is known of the node already."""
        load = self.load
        model = said.model[:_NAME_CHARACTERS]
        return msgspec.structs.replace(said, model=model, free=load.free, next_ms=load.next_ms, derate=load.derate)


class Asker:
    """``own`` announces the asking node, ``key`` lets it in where keys are wanted, ``tls`` is for ``https``.

    ``timeout_s`` is for a whole question. Connections stay open, one to each node; two threads never ask the same node
    at once.
    """

    def __init__(
        self, own: str, key: str = "", tls: ssl.SSLContext | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.own = own
        self._key = key
        self._tls = tls
        self._timeout_s = timeout_s
        self._open: dict[str, Connection] = {}
        self._closed = False

    def ask(self, dial: str, epoch: int, *, named: bool) -> Word | None:
        """None when nobody answers, or not as a node does. The list is fetched when its epoch is not ``epoch``.

        The key is shown only to addresses that the operator ``named``; to others the question is an open one.
        """
        end_s = time.monotonic() + self._timeout_s
        kept = self._open.pop(dial, None)
        if kept is not None:
            word = self._ask(dial, kept, epoch, end_s, named=named)
            if word is not None:
                return word
        # A connection that was kept may just have been closed for its idleness; a new one tells more.
        return self._ask(dial, self._connection(dial), epoch, end_s, named=named)

    def close(self) -> None:
        """Keep no connection any more."""
        self._closed = True
        while self._open:
            self._open.popitem()[1].close()

    def _ask(self, dial: str, connection: Connection | None, epoch: int, end_s: float, *, named: bool) -> Word | None:
        if connection is None:
            return None
        try:
            word = self._converse(connection, epoch, end_s, named=named)
        except FAILURES:
            word = None
        if word is None or self._closed:
            connection.close()
        else:
            self._open[dial] = connection
        return word

    def _connection(self, dial: str) -> Connection | None:
        """None for a port that is none."""
        try:
            return Connection(dial, self._tls)
        except ValueError:
            return None

    def _converse(self, connection: Connection, epoch: int, end_s: float, *, named: bool) -> Word | None:
        """Raises one of ``FAILURES``."""
        reply = connection.get("/readyz", {}, _BODY_BYTES, end_s)
        load = Load.parse(reply.headers.get("x-zl-load", ""))
        if load is None or reply.status not in (200, 503):
            return None
        says = reply.headers.get(NAME, "")[:_HEADER_CHARACTERS]
        nodes = None
        if load.epoch != epoch or epoch == 0:
            nodes = self._fetch(connection, end_s, named=named)
        return Word(reply.status == 200, says, load, nodes)

    def _fetch(self, connection: Connection, end_s: float, *, named: bool) -> NodeList | None:
        headers = {NAME: self.own}
        if self._key and named:
            headers["authorization"] = f"Bearer {self._key}"
        reply = connection.get(PATH, headers, _BODY_BYTES, end_s)
        return _list.decode(reply.body) if reply.status == 200 else None
