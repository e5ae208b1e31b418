"""Path and method to the action that answers; 404 and 405 in the shape that the SDKs read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import ReferenceType, ref

import msgspec

from zerolayer.errors import MethodNotAllowed, NotFound, ZerolayerError
from zerolayer.front.dialect import Dialect, dialect_of
from zerolayer.front.doorkeeper import Doorkeeper
from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.gate import Gate
from zerolayer.front.grpc import Calls, Method
from zerolayer.front.receipt import RECORDED
from zerolayer.front.site import Header
from zerolayer.wire.grpc import is_grpc
from zerolayer.wire.http1 import Head

_SERVER: Final = "*"  # the target of OPTIONS that stands for the server in general (RFC 9110 section 9.3.7)
_MAX_PREFLIGHT_BYTES: Final = 2048
_DECISIONS: Final = 64  # that are remembered


class _Place(msgspec.Struct, frozen=True):
    """What a path takes: by method, and in words."""

    actions: Mapping[str, Action]
    methods: tuple[str, ...]
    allow: bytes

    @classmethod
    def of(cls, actions: Mapping[str, Action]) -> _Place:
        """Whoever answers GET answers HEAD."""
        every = dict(actions)
        if "GET" in every:
            every["HEAD"] = every["GET"]
        methods = tuple(sorted(every))
        return cls(every, methods, ", ".join(methods).encode("ascii"))


class _Decision(msgspec.Struct, frozen=True):
    """Where a head leads that was let in. Connections share heads that come again, so it need not be decided again.

    It stands for all heads that are ``like`` its own, and lasts as long as that one, which may hold a key: who meets a
    head again keeps it. ``method`` is that of a gRPC call; ``recorded``, whether the ledger tells of what is let in.
    """

    head: ReferenceType[Head]
    action: Action | None
    allow: bytes
    method: Method | None
    dialect: Dialect
    recorded: bool


class Routes:
    """``table`` is path -> method -> action; a path that ends in ``/`` stands for all below it, ``/`` for itself.

    ``calls`` are gRPC's paths, told from the others by the request's content type. With a ``doorkeeper`` no path says
    anything to whoever has no key, not even that it does not exist.
    """

    def __init__(
        self,
        gate: Gate,
        table: Mapping[str, Mapping[str, Action]],
        calls: Calls | None = None,
        doorkeeper: Doorkeeper | None = None,
    ) -> None:
        self._gate = gate
        self._calls = calls
        self._doorkeeper = doorkeeper
        self._decisions: dict[int, _Decision] = {}
        self._exact: dict[str, _Place] = {}
        self._below: dict[str, _Place] = {}
        self.offer(_SERVER, {"OPTIONS": self._in_general})
        for path, actions in table.items():
            self.offer(path, actions)

    def offer(self, path: str, actions: Mapping[str, Action]) -> None:
        """Answer at ``path``, which is a row of the table."""
        self._decisions.clear()
        places = self._below if path != "/" and path.endswith("/") else self._exact
        places[path] = _Place.of(actions)

    def check(self, exchange: Exchange) -> ZerolayerError | None:
        """Decide on the head alone; sets ``exchange.action`` or returns the refusal."""
        head = exchange.head
        decision = self._decisions.get(id(head.like or head))
        if decision is None:
            exchange.dialect = dialect_of(head)
            if self._calls is None or not is_grpc(head.get(b"content-type")):
                return self._check_path(exchange)
            refusal = self._calls.check(exchange)  # first, for it also sets the form in which errors are told
            refusal = self._gate.check_caller(head) or self._ask_for_key(exchange) or refusal
            if refusal is None:
                self._remember(exchange, None, b"", self._calls.method(head))
            return refusal
        exchange.dialect = decision.dialect
        if self._doorkeeper is not None and decision.action is not _preflight:
            refused = self._doorkeeper.check(exchange)  # a decision is remembered, a key is asked for every time
            if refused is not None:
                if decision.method is not None and self._calls is not None:
                    self._calls.begin(exchange, decision.method)  # it sets the form in which errors are told
                return refused
        if decision.recorded:
            exchange.record()
        if decision.method is not None and self._calls is not None:
            return self._calls.begin(exchange, decision.method)
        exchange.action, exchange.allow = decision.action, decision.allow
        return None

    def _check_path(self, exchange: Exchange) -> ZerolayerError | None:
        head = exchange.head
        preflight = self._is_preflight(head)
        refusal = self._gate.check_caller(head)
        if refusal is None and not preflight:
            refusal = self._ask_for_key(exchange)
        refusal = refusal or self._gate.check_body(head)
        if refusal is not None:
            return refusal
        place = self._exact.get(head.path) or self._find_below(head.path)
        if place is None:
            return NotFound("there is nothing at this path; GET /openapi.json lists what there is")
        exchange.allow = place.allow
        action = place.actions.get(head.method)
        if action is None and preflight:
            action = _preflight
        if action is None:
            return MethodNotAllowed(f"this path does not take that method; use {' or '.join(place.methods)}")
        exchange.action = action
        self._remember(exchange, action, place.allow, None)
        return None

    def _ask_for_key(self, exchange: Exchange) -> ZerolayerError | None:
        """Whoever comes in is somebody, so from here on the ledger may tell of it."""
        refusal = None if self._doorkeeper is None else self._doorkeeper.check(exchange)
        if refusal is None and _recorded(exchange.head):
            exchange.record()
        return refusal

    def _in_general(self, exchange: Exchange) -> None:
        """Which methods there are, whatever the path: somebody's ping."""
        places = (*self._exact.values(), *self._below.values())
        methods = sorted({method for place in places for method in place.methods})
        exchange.reply(204, ((b"allow", ", ".join(methods).encode("ascii")),), b"")

    def _is_preflight(self, head: Head) -> bool:
        """A browser's question before its call: it never carries a key, and the answer names methods only."""
        return head.method == "OPTIONS" and head.get(b"origin") in self._gate.origins

    def _remember(self, exchange: Exchange, action: Action | None, allow: bytes, method: Method | None) -> None:
        head = exchange.head.like or exchange.head
        if len(self._decisions) >= _DECISIONS:
            self._decisions.clear()
        recorded = _recorded(head) and action is not _preflight
        number = id(head)
        lasting = ref(head, lambda _: self._decisions.pop(number, None))
        self._decisions[number] = _Decision(lasting, action, allow, method, exchange.dialect, recorded)

    def _find_below(self, path: str) -> _Place | None:
        for prefix, below in self._below.items():
            if path.startswith(prefix) and len(path) > len(prefix):
                return below
        return None


def _recorded(head: Head) -> bool:
    return head.path in RECORDED and head.method == "POST"


def _preflight(exchange: Exchange) -> None:
    """Answer a browser that asks before it calls (Fetch standard, CORS-preflight). Only allowed origins come here."""
    wanted = exchange.head.get(b"access-control-request-headers")
    headers: tuple[Header, ...] = (
        (b"access-control-allow-methods", exchange.allow),
        (b"access-control-max-age", b"600"),
    )
    if wanted is not None and len(wanted) <= _MAX_PREFLIGHT_BYTES:
        headers = (*headers, (b"access-control-allow-headers", wanted))
    exchange.reply(204, headers, b"")
