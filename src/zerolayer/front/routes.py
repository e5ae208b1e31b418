"""Path and method to the action that answers; 404 and 405 in the shape that the SDKs read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zerolayer.errors import MethodNotAllowed, NotFound, ZerolayerError
from zerolayer.front.doorkeeper import Doorkeeper
from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.gate import Gate
from zerolayer.front.grpc import Calls
from zerolayer.front.receipt import RECORDED
from zerolayer.front.site import Header
from zerolayer.wire.grpc import is_grpc
from zerolayer.wire.http1 import Head

_MAX_PREFLIGHT_BYTES: Final = 2048


class Routes:
    """``table`` is path -> method -> action; a path that ends in ``/`` stands for everything below it.

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
        self._exact = {path: actions for path, actions in table.items() if not path.endswith("/")}
        self._below = {path: actions for path, actions in table.items() if path.endswith("/")}

    def check(self, exchange: Exchange) -> ZerolayerError | None:
        """Decide on the head alone; sets ``exchange.action`` or returns the refusal."""
        head = exchange.head
        if self._calls is not None and is_grpc(head.get(b"content-type")):
            refusal = self._calls.check(exchange)  # first, for it also sets the form in which errors are told
            return self._gate.check_caller(head) or self._ask_for_key(exchange) or refusal
        refusal = self._gate.check_caller(head)
        if refusal is None and not self._is_preflight(head):
            refusal = self._ask_for_key(exchange)
        refusal = refusal or self._gate.check_body(head)
        if refusal is not None:
            return refusal
        actions = self._find(head.path)
        if actions is None:
            return NotFound("there is nothing at this path; GET /openapi.json lists what there is")
        action = actions.get("GET" if head.method == "HEAD" else head.method)
        if action is None and self._is_preflight(head):
            action = _preflight
        allowed = sorted({*actions, "HEAD"} if "GET" in actions else actions)
        exchange.allow = ", ".join(allowed).encode("ascii")
        if action is None:
            return MethodNotAllowed(f"this path does not take that method; use {' or '.join(allowed)}")
        exchange.action = action
        return None

    def _ask_for_key(self, exchange: Exchange) -> ZerolayerError | None:
        """Whoever comes in is somebody, so from here on the ledger may tell of it."""
        refusal = None if self._doorkeeper is None else self._doorkeeper.check(exchange)
        if refusal is None and exchange.head.path in RECORDED and exchange.head.method == "POST":
            exchange.record()
        return refusal

    def _is_preflight(self, head: Head) -> bool:
        """A browser's question before its call: it never carries a key, and the answer names methods only."""
        return head.method == "OPTIONS" and head.get(b"origin") in self._gate.origins

    def _find(self, path: str) -> Mapping[str, Action] | None:
        actions = self._exact.get(path)
        if actions is None:
            for prefix, below in self._below.items():
                if path.startswith(prefix) and len(path) > len(prefix):
                    return below
        return actions


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
