"""A server that is easily full, and what it tells of those whom it refused."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

CLIENTS = 6  # at once, on two slots: some of them are told a time behind somebody who was told one
TOKENS = 40  # of each: 0.2 seconds

Said = TypeVar("Said")


@dataclass(frozen=True)
class Busy:
    """A server with two slots whose steps take 5 ms."""

    url: str

    def served_after_a_refusal(self, ask: Callable[[], Said]) -> Said:
        """What ``ask`` says, whose clients were told 429 and came back: each of them at its time, and no one too late.

        The client tells of its answers only, so the server is asked what it refused and whose booking it kept.
        """
        before = self._counted()
        said = ask()
        after = self._counted()
        refused, kept, broken = (now - then for now, then in zip(after, before, strict=True))
        assert refused >= 1, "nobody was refused: the retry was not tried"
        assert kept >= 1, "nobody was served by the booking that the 429 told of"
        assert broken == 0
        return said

    def left(self, ask: Callable[[], Said]) -> Said:
        """What ``ask`` says, which leaves a stream: its slot is free again, long before the answer would have ended."""
        before = self._sum(r'zerolayer:abandoned_total\{[^}]*phase="\w+"\} (\d+)')
        said = ask()
        deadline = time.monotonic() + 30
        while self._sum(r'zerolayer:abandoned_total\{[^}]*phase="\w+"\} (\d+)') == before:
            assert time.monotonic() < deadline, "the server did not notice that its client left"
            time.sleep(0.05)
        assert self._sum(r"vllm:num_requests_running\{[^}]*\} (\d+)") == 0
        return said

    def _counted(self) -> tuple[int, int, int]:
        """Refusals for lack of slots; bookings that were kept; bookings that the server broke."""
        return (
            self._sum(r"vllm:admission_rejections_total\{[^}]*\} (\d+)"),
            self._sum(r'booking_total\{[^}]*outcome="kept"\} (\d+)'),
            self._sum(r'booking_total\{[^}]*outcome="broken"\} (\d+)'),
        )

    def _sum(self, pattern: str) -> int:
        address = urlsplit(self.url)
        assert address.hostname is not None
        assert address.port is not None
        connection = http.client.HTTPConnection(address.hostname, address.port + 1, timeout=5)  # of the admin
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        found = re.findall(pattern, page)
        assert found, f"/metrics has nothing like {pattern}"
        return sum(map(int, found))
