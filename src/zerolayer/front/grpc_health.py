"""gRPC health checking, ``grpc.health.v1.Health``: what load balancers and Kubernetes ask.

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md. The two messages have one field each, so they
are read and written here by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from zerolayer.errors import InvalidRequest, NotFound, Unavailable
from zerolayer.front.grpc import GrpcCall, Method

HEALTH: Final = b"grpc.health.v1.Health"
_SERVING: Final = b"\x08\x01"  # field 1, an enum
_NOT_SERVING: Final = b"\x08\x02"
_SERVICE_UNKNOWN: Final = b"\x08\x03"
_NAME_TAG: Final = 0x0A  # field 1, a string
_LONGEST: Final = 0x7F  # a name that needs a second byte of length is none of ours


class GrpcHealth:
    """``closed`` gives the reason why the service takes no work, or None; ``services`` are the names it answers for."""

    def __init__(self, closed: Callable[[], Unavailable | None], services: frozenset[bytes]) -> None:
        self._closed = closed
        self._services = services | {b"", HEALTH}
        self._watchers: dict[GrpcCall, bytes] = {}  # and what each was told last

    def methods(self) -> dict[str, Method]:
        """Path -> method."""
        service = HEALTH.decode("ascii")
        return {f"/{service}/Check": Method(self._check), f"/{service}/Watch": Method(self._watch)}

    def refresh(self) -> None:
        """Tell the watchers if the state has changed; called at each sweep."""
        status = self._status()
        for call, told in list(self._watchers.items()):
            if told not in (status, _SERVICE_UNKNOWN):
                self._watchers[call] = status
                call.send(status)

    def end(self) -> None:
        """The server drains: tell the watchers and end their calls, which would otherwise hold it up."""
        self.refresh()
        watchers, self._watchers = self._watchers, {}
        for call in watchers:
            call.fail(Unavailable("the server is shutting down; watch it again in a moment"))

    def _check(self, call: GrpcCall, message: bytes | None) -> None:
        if _service(message or b"") not in self._services:
            raise NotFound("this server does not answer for that service; ask for the empty name")
        call.finish(self._status())

    def _watch(self, call: GrpcCall, message: bytes | None) -> None:
        status = self._status() if _service(message or b"") in self._services else _SERVICE_UNKNOWN
        self._watchers[call] = status
        call.on_gone = partial(self._forget, call)
        call.send(status)
        call.exchange.park()

    def _forget(self, call: GrpcCall) -> None:
        self._watchers.pop(call, None)

    def _status(self) -> bytes:
        return _SERVING if self._closed() is None else _NOT_SERVING


def _service(message: bytes) -> bytes:
    """The name in a HealthCheckRequest. Raises ``InvalidRequest``."""
    if not message:
        return b""
    if message[0] != _NAME_TAG or len(message) < 2 or (message[1] <= _LONGEST and len(message) != 2 + message[1]):
        raise InvalidRequest("the message is no grpc.health.v1.HealthCheckRequest")
    return message[2:]
