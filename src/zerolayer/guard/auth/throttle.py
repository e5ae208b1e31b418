"""How many signatures strangers can make this server verify: so many for each address, and so many in all.

A key that turns out good gives its place back, so that only wrong keys use it up. The clock is passed in.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

BURST: Final = 32  # wrong keys at once from one address
INTERVAL_NS: Final = 62_500_000  # and one more in this time: 16 a second
ALL_BURST: Final = 1024
ALL_INTERVAL_NS: Final = 1_000_000  # 1,000 a second, a tenth of one core
ADDRESSES: Final = 4096  # remembered; the one that came first is forgotten


class Bucket:
    """A leaky bucket: ``burst`` at once, and one more every ``interval_ns``."""

    __slots__ = ("_burst_ns", "_empty_ns", "_interval_ns")

    def __init__(self, burst: int, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._burst_ns = burst * interval_ns
        self._empty_ns = 0  # when it will have run dry

    def take(self, now_ns: int) -> int:
        """0 when there was room, which is used; else how long it takes until there is, in nanoseconds."""
        filled = max(self._empty_ns, now_ns) + self._interval_ns
        wait = filled - now_ns - self._burst_ns
        if wait > 0:
            return wait
        self._empty_ns = filled
        return 0

    def give_back(self) -> None:
        """What was taken last was not needed."""
        self._empty_ns -= self._interval_ns


class Throttle:
    """``clock_ns`` is monotonic."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._all = Bucket(ALL_BURST, ALL_INTERVAL_NS)
        self._buckets: dict[str, Bucket] = {}

    def take(self, address: str) -> int:
        """Whether ``address`` may make one verification: 0, or the nanoseconds until it may."""
        now = self._clock_ns()
        own = self._of(address)
        wait = own.take(now)
        if wait:
            return wait
        wait = self._all.take(now)
        if wait:
            own.give_back()
        return wait

    def give_back(self, address: str) -> None:
        """The key was good."""
        self._of(address).give_back()
        self._all.give_back()

    def _of(self, address: str) -> Bucket:
        name = network(address)
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= ADDRESSES:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[name] = Bucket(BURST, INTERVAL_NS)
        return bucket


def network(address: str) -> str:
    """Who counts as one: an IPv4 address, or the 64 bits of an IPv6 address that one customer has (RFC 6177)."""
    if ":" not in address:
        return address
    try:
        known = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    return socket.inet_ntop(socket.AF_INET6, known[:8] + bytes(8)) + "/64"
