"""What became of a client's calls, and whether retrying helped."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Attempts:
    """How one call came about: the nodes asked in order, and why it was asked more than once.

    ``booked`` retries came at a promised time, ``backed_off`` ones after a guess, ``moved`` ones at once elsewhere.
    ``unanswered`` requests were sent again although their server may have worked on them, and ``hedged`` ones were sent
    to a second node while the first still worked on them. ``waited_ms`` is the sum of the waits. ``answered_by`` is the
    node whose reply began. ``woken`` of the waits ended early, because a node had a free slot.
    """

    nodes: tuple[str, ...] = ()
    booked: int = 0
    backed_off: int = 0
    moved: int = 0
    unanswered: int = 0
    waited_ms: float = 0.0
    hedged: int = 0
    answered_by: str = ""
    woken: int = 0

    @property
    def retries(self) -> int:
        """All attempts but the first, hedges included."""
        return max(0, len(self.nodes) - 1)

    @property
    def waits(self) -> int:
        """How often it was refused and came back after a wait."""
        return self.booked + self.backed_off


@dataclass(frozen=True)
class Statistics:
    """Sums since the client was made. A call is ``answered`` when its reply began, ``cut`` when that broke off later.

    ``retried`` calls needed more than one attempt; ``rescued`` ones of them were answered. ``out_of_budget`` calls
    failed because too many others had been retried. Of ``hedged`` requests, ``hedges_won`` began before the first one.
    ``woken`` waits ended early, because a node had a free slot.
    """

    calls: int = 0
    answered: int = 0
    failed: int = 0
    cut: int = 0
    retried: int = 0
    rescued: int = 0
    booked: int = 0
    backed_off: int = 0
    moved: int = 0
    unanswered: int = 0
    out_of_budget: int = 0
    hedged: int = 0
    hedges_won: int = 0
    woken: int = 0

    @property
    def retrying_helped(self) -> float | None:
        """The share of the retried calls that were answered; None when none was retried."""
        return self.rescued / self.retried if self.retried else None


@dataclass
class Tally:
    """The running sums."""

    _sums: dict[str, int] = field(default_factory=lambda: asdict(Statistics()))

    def add(self, name: str, number: int = 1) -> None:
        """Count ``number`` more of ``name``."""
        self._sums[name] += number

    def end(self, attempts: Attempts, *, answered: bool) -> None:
        """A call has its reply, or failed."""
        self.add("answered" if answered else "failed")
        for name in ("booked", "backed_off", "moved", "unanswered", "hedged", "woken"):
            self.add(name, getattr(attempts, name))
        if attempts.retries > attempts.hedged:
            self.add("retried")
            self.add("rescued", int(answered))

    def statistics(self) -> Statistics:
        """The sums as they are now."""
        return Statistics(**self._sums)
