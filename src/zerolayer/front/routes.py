"""Path and method to the action that answers; 404 and 405 in the shape that the SDKs read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zerolayer.errors import MethodNotAllowed, NotFound, ZerolayerError
from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.gate import Gate
from zerolayer.front.grpc import Calls
from zerolayer.front.site import Header
from zerolayer.wire.grpc import is_grpc

_MAX_PREFLIGHT_BYTES: Final = 2048


class Routes:
    """``table`` is path -> method -> action; a path that ends in ``/`` stands for all below it, ``/`` for itself.

    ``calls`` are gRPC's paths, told from the others by the request's content type.
    """

    def __init__(self, gate: Gate, table: Mapping[str, Mapping[str, Action]], calls: Calls | None = None) -> None:
        self._gate = gate
        self._calls = calls
        self._exact = {path: actions for path, actions in table.items() if path == "/" or not path.endswith("/")}
        self._below = {path: actions for path, actions in table.items() if path != "/" and path.endswith("/")}

    def check(self, exchange: Exchange) -> ZerolayerError | None:
        """Decide on the head alone; sets ``exchange.action`` or returns the refusal."""
        head = exchange.head
        if self._calls is not None and is_grpc(head.get(b"content-type")):
            refusal = self._calls.check(exchange)  # first, for it also sets the form in which errors are told
            return self._gate.check_caller(head) or refusal
        refusal = self._gate.check(head)
        if refusal is not None:
            return refusal
        actions = self._find(head.path)
        if actions is None:
            return NotFound("there is nothing at this path; /v1/chat/completions, /v1/completions and /v1/models exist")
        action = actions.get("GET" if head.method == "HEAD" else head.method)
        if action is None and head.method == "OPTIONS" and head.get(b"origin") in self._gate.origins:
            action = _preflight
        allowed = sorted({*actions, "HEAD"} if "GET" in actions else actions)
        exchange.allow = ", ".join(allowed).encode("ascii")
        if action is None:
            return MethodNotAllowed(f"this path does not take that method; use {' or '.join(allowed)}")
        exchange.action = action
        return None

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
