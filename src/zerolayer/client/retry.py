"""When to ask again: the promised millisecond, or exponential backoff with full jitter, in a budget. Pure: no clock.

Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/. Budget: a share of the calls, as
gRPC's retry throttling has it (proposal A6), so that many clients of a broken service do not multiply its load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NS_PER_MS: Final = 1_000_000
TRUSTED_SKEW_NS: Final = 2_000_000_000  # a server whose clock is further off is not believed about the age of a reply


@dataclass(frozen=True)
class RetryPolicy:
    """``base_ms`` and ``cap_ms`` bound the backoff; ``share`` of the calls may be retried unbooked, ``spare`` at once.

    ``replay_unanswered``: whether a request is sent again whose connection broke before the first byte of a reply. The
    server may have worked on it, so each such replay is counted in the call's account and in the statistics.
    """

    base_ms: int = 50
    cap_ms: int = 8000
    share: float = 0.2
    spare: int = 10
    replay_unanswered: bool = True


def backoff_ns(policy: RetryPolicy, nth: int, chance: float) -> int:
    """The wait before the ``nth`` (from 0) unpromised retry; ``chance`` is uniform in [0, 1)."""
    bound_ms = min(policy.cap_ms, policy.base_ms << min(nth, 30))
    return max(1, int(chance * bound_ms * NS_PER_MS))


def promised_ns(*, sent_ns: int, read_ns: int, wait_ms: int, read_wall_ns: int, server_wall_ns: int | None) -> int:
    """The monotonic time of a promise of ``wait_ms`` in a reply to a request sent at ``sent_ns``, read at ``read_ns``.

    The promise counts from when the server stamped the reply. How long ago that was is known where both wall clocks
    agree to ``TRUSTED_SKEW_NS``; it is never longer ago than the request was sent, whatever the clocks say.
    """
    age_ns = 0
    if server_wall_ns is not None and abs(read_wall_ns - server_wall_ns) <= TRUSTED_SKEW_NS:
        age_ns = min(max(0, read_wall_ns - server_wall_ns), max(0, read_ns - sent_ns))
    return read_ns - age_ns + wait_ms * NS_PER_MS


class RetryBudget:
    """Each call earns ``policy.share`` of a retry, up to ``policy.spare``, which is also what there is at first.

    Booked starts are not drawn from it: the server has kept a slot for them.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._share = policy.share
        self._spare = float(policy.spare)
        self._left = self._spare

    def earn(self) -> None:
        """A call begins."""
        self._left = min(self._spare, self._left + self._share)

    def draw(self) -> bool:
        """Take one retry, if there is one."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
