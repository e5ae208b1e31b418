"""What a request says about its time, in every dialect, and what was applied of it. Pure: no clock.

Three limits: when the first token is due, how long a gap between two tokens may be, and when the last token is due.
For each the smallest source counts; where no source speaks, the contract does. Sources: vLLM's and llm-d's SLO headers
(https://llm-d.ai, flow control), the ``x-stainless-*`` headers in which OpenAI's and Anthropic's SDKs tell their own
timeouts, ``grpc-timeout`` (gRPC over HTTP/2, Requests), and this project's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from zerolayer.errors import DeadlineExpired, InvalidRequest

Get = Callable[[bytes], bytes | None]

_NS_PER_MS: Final = 1_000_000
_MAX_MS: Final = 86_400_000.0  # a day; longer ones count as a day
_SDK_DEFAULT_S: Final = 600.0  # of OpenAI's and Anthropic's SDKs: nobody chose it
_UNSET: Final = frozenset({b"NOT_GIVEN", b"None"})  # as Python's SDKs print a timeout that is left to the client
_NUMBER: Final = re.compile(rb"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,2})?", re.IGNORECASE)
_GRPC: Final = re.compile(rb"(-?[0-9]{1,8})([HMSmun])")
_GRPC_MS: Final = {b"H": 3_600_000.0, b"M": 60_000.0, b"S": 1000.0, b"m": 1.0, b"u": 1e-3, b"n": 1e-6}
_UNITS: Final = rb"(?:ns|us|\xc2\xb5s|\xce\xbcs|ms|s|m|h)"  # micro has two letters in Unicode, and Go reads both
_GO: Final = re.compile(rb"[-+]?(?:(?:[0-9]{1,19}\.?[0-9]{0,40}|\.[0-9]{1,40})" + _UNITS + rb"){1,16}")
_GO_PART: Final = re.compile(rb"([0-9.]+)(" + _UNITS + rb")")
_GO_MS: Final = {b"h": 3_600_000.0, b"m": 60_000.0, b"s": 1000.0, b"ms": 1.0, b"ns": 1e-6}  # any other is micro
_SOURCES: Final = (
    b"x-stainless-read-timeout",
    b"x-stainless-timeout",
    b"x-zl-deadline-ms",
    b"grpc-timeout",
    b"x-slo-ttft-ms",
    b"x-llm-d-slo-ttft-ms",
    b"x-llm-d-inference-ttl",
    b"x-slo-tpot-ms",
    b"x-llm-d-slo-tpot-ms",
)
# Clients of gRPC round their deadline up, by at most this much in measurements.
_GRPC_SHARE, _GRPC_MARGIN_MS = 0.98, 1.0


class Limits(msgspec.Struct, frozen=True):
    """The three limits in nanoseconds, and who set them.

    What the request set itself counts from its first byte; what the contract promises, from when the request is
    complete. ``asked`` tells whether the request set the first and the last of them. ``patience_ns`` is the deadline
    that holds for the request itself, whatever number of attempts it takes; None when a further attempt begins a new
    one (timeouts of SDKs hold for one attempt, and the contract does too).
    """

    first_token_ns: int
    per_token_ns: int
    end_ns: int
    patience_ns: int | None = None
    asked: tuple[bool, bool] = (False, False)

    @property
    def end_ms(self) -> int:
        """The end, in milliseconds, rounded down."""
        return self.end_ns // _NS_PER_MS

    def after(self, passed_ns: int) -> Limits:
        """What is left of them so long after the first byte. Raises ``DeadlineExpired`` where nothing is."""
        first, end = self.asked
        if not (first or end):
            return self
        left = Limits(
            self.first_token_ns - first * passed_ns,
            self.per_token_ns,
            self.end_ns - end * passed_ns,
            None if self.patience_ns is None else self.patience_ns - passed_ns,
            self.asked,
        )
        if min(left.first_token_ns, left.end_ns) <= 0:
            raise DeadlineExpired("the deadline of the request passes before it can begin; give it more time")
        return left

    def header(self) -> bytes:
        """The value of the reply's ``x-zl-deadline-ms``: an item with parameters (RFC 9651), all in milliseconds."""
        return _header(self.end_ns, self.first_token_ns, self.per_token_ns)


@lru_cache(256)
def _header(end_ns: int, first_token_ns: int, per_token_ns: int) -> bytes:
    """Most requests leave their limits to the contract."""
    return b"%d;first_token=%d;per_token=%d" % (
        end_ns // _NS_PER_MS,
        first_token_ns // _NS_PER_MS,
        per_token_ns // _NS_PER_MS,
    )


def of_contract(first_token_ms: int, per_token_ms: int, end_ms: int) -> Limits:
    """What holds where a request says nothing."""
    return Limits(first_token_ms * _NS_PER_MS, per_token_ms * _NS_PER_MS, end_ms * _NS_PER_MS)


def read_limits(get: Get, *, deadline_ms: float | None, stream: bool, contract: Limits) -> Limits:
    """The limits of one request. ``get`` gives a header's value, ``deadline_ms`` is the body's member.

    Raises ``InvalidRequest`` for what cannot be read, ``DeadlineExpired`` for a limit of zero or less: it has passed,
    and must never be taken for the most urgent one.
    """
    asked = _asked(tuple(map(get, _SOURCES)), deadline_ms, stream)
    if asked is None:
        return contract
    first, gap, end, own = asked
    return Limits(
        _applied(first, contract.first_token_ns),
        _applied(gap, contract.per_token_ns),
        _applied(end, contract.end_ns),
        None if own is None else _applied(own, contract.end_ns),
        (first is not None, end is not None),
    )


_Asked = tuple[float | None, float | None, float | None, float | None]
"""First token, gap, end, and the end whatever number of attempts it takes; in milliseconds, None where nobody asks."""


@lru_cache(256)
def _asked(values: tuple[bytes | None, ...], deadline_ms: float | None, stream: bool) -> _Asked | None:
    """``values`` are those of ``_SOURCES``. Clients have few ways to say how long they wait, and say it every time.

    None where nothing is asked. Raises as ``read_limits``.
    """
    get = dict(zip(_SOURCES, values, strict=True)).get
    read_timeout = _seconds(get, b"x-stainless-read-timeout")
    own = _smallest(deadline_ms, _milliseconds(get, b"x-zl-deadline-ms"), _grpc(get))
    end = _smallest(own, _seconds(get, b"x-stainless-timeout"), None if stream else read_timeout)
    first = _smallest(
        _milliseconds(get, b"x-slo-ttft-ms"),
        _milliseconds(get, b"x-llm-d-slo-ttft-ms"),
        _go_duration(get, b"x-llm-d-inference-ttl"),
        read_timeout if stream else None,
    )
    gap = _smallest(
        _milliseconds(get, b"x-slo-tpot-ms"),
        _milliseconds(get, b"x-llm-d-slo-tpot-ms"),
        read_timeout if stream else None,
    )
    if end is first is gap is None:
        return None
    if min(limit for limit in (end, first, gap) if limit is not None) <= 0:
        raise DeadlineExpired("the deadline of the request has passed already; give it more time or leave it out")
    return first, gap, end, own


def _applied(asked_ms: float | None, contract_ns: int) -> int:
    return contract_ns if asked_ms is None else int(min(asked_ms, _MAX_MS) * _NS_PER_MS)


def _smallest(*limits: float | None) -> float | None:
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


def _malformed(name: bytes, wanted: str) -> InvalidRequest:
    return InvalidRequest(f"the header {name.decode('ascii')} must be {wanted}", param=name.decode("ascii"))


def _number(get: Get, name: bytes, wanted: str) -> float | None:
    value = get(name)
    if value is None:
        return None
    if not _NUMBER.fullmatch(value):
        raise _malformed(name, wanted)
    return float(value)


def _milliseconds(get: Get, name: bytes) -> float | None:
    return _number(get, name, "a number of milliseconds, such as 2000")


def _seconds(get: Get, name: bytes) -> float | None:
    """An SDK's own timeout in milliseconds; its default counts as not set."""
    if get(name) in _UNSET:
        return None
    value = _number(get, name, "a number of seconds, such as 30")
    return None if value is None or value == _SDK_DEFAULT_S else value * 1000


def _grpc(get: Get) -> float | None:
    value = get(b"grpc-timeout")
    if value is None:
        return None
    parts = _GRPC.fullmatch(value)
    if parts is None:
        raise _malformed(b"grpc-timeout", "digits and one of H M S m u n, such as 2S")
    return float(parts[1]) * _GRPC_MS[parts[2]] * _GRPC_SHARE - _GRPC_MARGIN_MS


def _go_duration(get: Get, name: bytes) -> float | None:
    """``time.ParseDuration`` of Go, as in 1m30s or 250ms."""
    value = get(name)
    if value is None:
        return None
    if value in (b"0", b"-0", b"+0"):
        return 0.0
    if not _GO.fullmatch(value):
        raise _malformed(name, "a duration as Go writes it, such as 250ms or 1m30s")
    total = sum(float(number) * _GO_MS.get(unit, 1e-3) for number, unit in _GO_PART.findall(value))
    return -total if value.startswith(b"-") else total
