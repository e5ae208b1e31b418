"""One question to one node: does it take work, how loaded is it, whom does it know. Blocking; runs on a thread."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec

from zerolayer.cluster.membership import Listed, NodeList
from zerolayer.wire.load import Load

PATH: Final = "/v1/nodes"
NAME: Final = "x-zl-node"
"""What a node is called: on the reply of ``/readyz`` its own name, on a question the name of whoever asks."""
TIMEOUT_S: Final = 1.0
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

    Connections stay open, one to each node; two threads never ask the same node at once.
    """

    def __init__(self, own: str, key: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.own = own
        self._key = key
        self._tls = tls
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._closed = False

    def ask(self, dial: str, epoch: int, *, named: bool) -> Word | None:
        """None when nobody answers, or not as a node does. The list is fetched when its epoch is not ``epoch``.

        The key is shown only to addresses that the operator ``named``; to others the question is an open one.
        """
        kept = self._open.pop(dial, None)
        if kept is not None:
            word = self._ask(dial, kept, epoch, named=named)
            if word is not None:
                return word
        # A connection that was kept may just have been closed for its idleness; a new one tells more.
        return self._ask(dial, self._connection(dial), epoch, named=named)

    def close(self) -> None:
        """Keep no connection any more."""
        self._closed = True
        while self._open:
            self._open.popitem()[1].close()

    def _ask(self, dial: str, connection: http.client.HTTPConnection | None, epoch: int, *, named: bool) -> Word | None:
        if connection is None:
            return None
        try:
            word = self._converse(connection, epoch, named=named)
        except (OSError, ValueError, RecursionError, http.client.HTTPException):
            word = None
        if word is None or self._closed:
            connection.close()
        else:
            self._open[dial] = connection
        return word

    def _connection(self, dial: str) -> http.client.HTTPConnection | None:
        """None for a port that is none. It connects when it is used."""
        where = urlsplit(dial)
        host = where.hostname or ""
        try:
            port = where.port
        except ValueError:
            return None
        if where.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def _converse(self, connection: http.client.HTTPConnection, epoch: int, *, named: bool) -> Word | None:
        """Raises ``OSError``, ``ValueError``, ``RecursionError``, ``HTTPException``."""
        connection.request("GET", "/readyz")
        reply = connection.getresponse()
        reply.read(_BODY_BYTES)
        load = Load.parse(reply.headers.get("x-zl-load", ""))
        if load is None or reply.status not in (200, 503):
            return None
        says = reply.headers.get(NAME, "")[:_HEADER_CHARACTERS]
        nodes = None
        if load.epoch != epoch or epoch == 0:
            nodes = self._fetch(connection, named=named)
        return Word(reply.status == 200, says, load, nodes)

    def _fetch(self, connection: http.client.HTTPConnection, *, named: bool) -> NodeList | None:
        headers = {NAME: self.own}
        if self._key and named:
            headers["authorization"] = f"Bearer {self._key}"
        connection.request("GET", PATH, headers=headers)
        reply = connection.getresponse()
        body = reply.read(_BODY_BYTES)
        return _list.decode(body) if reply.status == 200 else None
