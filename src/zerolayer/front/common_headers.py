"""The headers that every reply carries, in the bytes of the protocol that carries it: most of them never change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zerolayer.front._native import CommonHeadersBase

_ALLOW_ORIGIN: Final = b"access-control-allow-origin"
_EXPOSED: Final = (
    b"x-request-id, request-id, x-server-time, x-zl-load, x-zl-truncated, x-zl-deadline-ms, x-zl-age-ms, x-zl-stale, "
    b"x-zl-ticket, x-zl-peers, x-zl-cache, server-timing, retry-after, retry-after-ms, x-should-retry, "
    b"x-ratelimit-limit-requests, "
    b"x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
    b"x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
OWN_ID_BYTES: Final = 20  # of a request's name that we have made
_SAMPLE: Final = b"1000000000.000000"  # as long as every time between the years 2001 and 2286


class Spelling(Protocol):
    """How a protocol writes one header."""

    def __call__(self, name: bytes, value: bytes) -> bytes:
        """The bytes of it. Raises ValueError when ``value`` holds a line break."""


class CommonHeaders(CommonHeadersBase):
    """``wall_s`` is the time in Unix seconds, ``load`` renders ``x-zl-load``; ``origins`` are pages that may call."""

    def __init__(
        self,
        spell: Spelling,
        version: str,
        wall_s: Callable[[], float],
        load: Callable[[], bytes],
        origins: frozenset[bytes],
    ) -> None:
        self._spell = spell
        self._wall_s = wall_s
        self._load = load
        self._origins = origins
        constant = spell(b"server", b"zerolayer/" + version.encode())
        if origins:
            constant += spell(b"vary", b"origin")
        self._constant = constant
        self._time, self._after_time = spell(b"x-server-time", _SAMPLE).split(_SAMPLE)
        self._around_load: dict[int, tuple[bytes, bytes]] = {}  # a load's length -> as below
        self._around: dict[int, tuple[bytes, bytes]] = {}  # an id's length -> what stands before it and after it
        self._tell(load())
        self._fit(OWN_ID_BYTES)

    def of(self, request_id: bytes, also_as: bytes = b"", origin: bytes | None = None) -> bytes:
        """``request_id`` is visible ASCII, and told as the header ``also_as`` too.

        ``origin`` is what the request's header of that name said.
        """
        headers = self.usual(request_id)
        if also_as:
            headers += self._spell(also_as, request_id)
        if origin is not None and origin in self._origins:
            headers += self._spell(_ALLOW_ORIGIN, origin) + self._spell(b"access-control-expose-headers", _EXPOSED)
        return headers

    def _tell(self, load: bytes) -> None:
        """The load changes with the slots, which is far less often than it is told."""
        before, after = self._around_load.get(len(load)) or self._load_of(len(load))
        self._told_load = load
        self._start = before + load + after

    def _load_of(self, size: int) -> tuple[bytes, bytes]:
        """What is written around a load of ``size`` bytes."""
        sample = b"0" * size
        spelled = self._spell(b"x-zl-load", sample)
        at = spelled.rindex(sample) if size else len(spelled)
        before, after = spelled[:at], spelled[at + size :]
        self._around_load[size] = around = self._constant + before, after + self._time
        return around

    def _fit(self, size: int) -> None:
        """From here on ids have ``size`` bytes."""
        self._between, self._after = self._around.get(size) or self._id(size)
        self._id_bytes = size

    def _id(self, size: int) -> tuple[bytes, bytes]:
        """What is written around an id of ``size`` bytes."""
        sample = b"0" * size
        before, after = self._spell(b"x-request-id", sample).rsplit(sample, 1)
        self._around[size] = around = self._after_time + before, after
        return around
