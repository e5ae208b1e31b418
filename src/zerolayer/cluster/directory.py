"""The addresses of nodes, from all sources together; what a source said last stands until it says something else.

Only the standard library is used here and in the sources, so that clients can find nodes in the same ways.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from zerolayer.errors import ZerolayerError

_log = logging.getLogger("zerolayer.cluster")

SOONEST_S: Final = 1.0
LATEST_S: Final = 30.0
FIRST_S: Final = 0.05  # after the first failure of a source that has never answered; doubles up to ``SOONEST_S``
_NS_PER_S: Final = 1_000_000_000


class DiscoveryError(ZerolayerError):
    """A source gave no answer, or none that can be read. Never sent to a client."""

    code = "discovery_error"


@dataclass(frozen=True)
class Found:
    """URLs of nodes, and for how many seconds they may be believed."""

    addresses: tuple[str, ...]
    fresh_s: float = LATEST_S


class Source(Protocol):
    """One place where nodes are written down."""

    @property
    def name(self) -> str:
        """What the operator wrote."""

    def look(self) -> Found:
        """What is written there now. Blocks for some seconds at most; raises ``DiscoveryError``."""


@dataclass
class _Kept:
    source: Source
    addresses: tuple[str, ...] = ()
    due_ns: int = 0
    failures: int = 0  # since it answered last
    answered: bool = False


class Directory:
    """All sources of one node or client. Times are monotonic nanoseconds; one thread at a time."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._kept = [_Kept(source) for source in sources]

    @property
    def addresses(self) -> list[str]:
        """What is known now, each once."""
        return list(dict.fromkeys(address for kept in self._kept for address in kept.addresses))

    @property
    def waits(self) -> bool:
        """Whether a source has not answered yet: it may tell of nodes when it does."""
        return not all(kept.answered for kept in self._kept)

    def next_ns(self) -> int | None:
        """When a source should be asked next; None without sources."""
        return min((kept.due_ns for kept in self._kept), default=None)

    def due(self, now_ns: int) -> bool:
        """Whether a source should be asked."""
        return any(now_ns >= kept.due_ns for kept in self._kept)

    def look(self, now_ns: int) -> list[str]:
        """Ask the sources that are due; all addresses then. A source that fails loses none of what it said before."""
        for kept in self._kept:
            if now_ns >= kept.due_ns:
                self._ask(kept, now_ns)
        return self.addresses

    def _ask(self, kept: _Kept, now_ns: int) -> None:
        try:
            found = kept.source.look()
        except Exception as error:  # noqa: BLE001 - a defect in one source must not end the looking for good
            if not kept.failures:
                _log.warning(
                    "%s: %s; its %d nodes are kept",
                    kept.source.name,
                    error.message if isinstance(error, DiscoveryError) else type(error).__name__,
                    len(kept.addresses),
                )
            pause_s = SOONEST_S if kept.answered else min(SOONEST_S, FIRST_S * (1 << min(kept.failures, 10)))
            kept.failures, kept.due_ns = kept.failures + 1, now_ns + int(pause_s * _NS_PER_S)
            return
        if kept.failures:
            _log.info("%s answers again", kept.source.name)
        kept.failures, kept.answered, kept.addresses = 0, True, found.addresses
        kept.due_ns = now_ns + int(min(LATEST_S, max(SOONEST_S, found.fresh_s)) * _NS_PER_S)
