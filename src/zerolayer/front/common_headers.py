"""The headers that every reply carries, in the bytes of the protocol that carries it: most of them never change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

_ALLOW_ORIGIN: Final = b"access-control-allow-origin"
_EXPOSED: Final = (
    b"x-request-id, request-id, x-server-time, x-zl-load, x-zl-truncated, x-zl-deadline-ms, x-zl-age-ms, x-zl-stale, "
    b"x-zl-ticket, x-zl-peers, x-zl-cache, server-timing, retry-after, retry-after-ms, x-should-retry, "
    b"x-ratelimit-limit-requests, "
    b"x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
    b"x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
OWN_ID_BYTES: Final = 20  # of a request's name that we have made
_SECONDS: Final = b"%d.%06d"
_MICROSECONDS: Final = 1_000_000  # in a second
_SAMPLE: Final = b"1000000000.000000"  # as long as every time between the years 2001 and 2286
_OWN_ID: Final = b"0" * OWN_ID_BYTES


class Spelling(Protocol):
    """How a protocol writes one header."""

    def __call__(self, name: bytes, value: bytes) -> bytes:
        """The bytes of it. Raises ValueError when ``value`` holds a line break."""


class CommonHeaders:
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
        self._told_load = b""
        constant = spell(b"server", b"zerolayer/" + version.encode())
        if origins:
            constant += spell(b"vary", b"origin")
        self._constant = constant
        self._time = spell(b"x-server-time", _SAMPLE).replace(_SAMPLE, _SECONDS)
        self._id = spell(b"x-request-id", _OWN_ID).replace(_OWN_ID, b"%b")
        self._start = self._with_own_id = b""
        self._tell(load())

    def of(self, request_id: bytes, also_as: bytes = b"", origin: bytes | None = None) -> bytes:
        """``request_id`` is visible ASCII, and told as the header ``also_as`` too.

        ``origin`` is what the request's header of that name said.
        """
        load = self._load()
        if load != self._told_load:
            self._tell(load)
        time_us = round(self._wall_s() * _MICROSECONDS)  # whole numbers are written three times as fast
        seconds = time_us // _MICROSECONDS
        if len(request_id) == OWN_ID_BYTES:
            headers = self._with_own_id % (seconds, time_us - seconds * _MICROSECONDS, request_id)
        else:
            headers = self._start % (seconds, time_us - seconds * _MICROSECONDS)
            headers += self._spell(b"x-request-id", request_id)
        if also_as:
            headers += self._spell(also_as, request_id)
        if origin is not None and origin in self._origins:
            headers += self._spell(_ALLOW_ORIGIN, origin) + self._spell(b"access-control-expose-headers", _EXPOSED)
        return headers

    def _tell(self, load: bytes) -> None:
        """The load changes with the slots, which is far less often than it is told."""
        self._told_load = load
        constant = self._constant + self._spell(b"x-zl-load", load)
        self._start = constant.replace(b"%", b"%%") + self._time
        self._with_own_id = self._start + self._id
