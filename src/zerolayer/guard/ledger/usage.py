"""Reports from a ledger: what was used, by tenant, key, model or day. Pure: records in, rows out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec

from zerolayer.guard.ledger.record import Entry, Flag, Match, Meter, Note, Outcome, Record

IDLE: Final = b"_idle"
_NS_PER_US: Final = 1000
_US_PER_S: Final = 1_000_000
_US_PER_HOUR: Final = 3_600_000_000
_LAST_US: Final = 253_402_300_799_999_999


class Window(msgspec.Struct, frozen=True):
    """Which records count: by UTC day, both days included, and of one tenant if one is named."""

    since: date | None = None
    until: date | None = None
    tenant: str | None = None

    def of(self, records: Iterable[Record | None]) -> Iterator[Entry | Meter | Match]:
        """Those of ``records`` that lie in the window; notes of the ledger itself never do."""
        low = 0 if self.since is None else _us(self.since)
        high = 1 << 63 if self.until is None else _us(self.until + timedelta(days=1))
        name = None if self.tenant is None else self.tenant.encode()
        for record in records:
            if record is None or isinstance(record, Note):
                continue
            if low <= record.ended_us < high and name in (None, record.tenant):
                yield record


class Use(msgspec.Struct):
    """One row of a report. ``core_us`` are microseconds of one core; idle time is a row of its own."""

    requests: int = 0
    finished: int = 0
    refused: int = 0
    aborted: int = 0
    failed: int = 0
    from_cache: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    core_ns: int = 0

    @property
    def core_us(self) -> int:
        """Compute in microseconds of one core."""
        return self.core_ns // _NS_PER_US

    def add(self, record: Entry | Meter) -> None:
        """Count a record."""
        self.core_ns += record.core_ns
        if isinstance(record, Meter):
            return
        self.requests += 1
        self.finished += record.outcome == Outcome.FINISHED
        self.refused += record.outcome == Outcome.REFUSED
        self.aborted += record.outcome == Outcome.ABORTED
        self.failed += record.outcome == Outcome.FAILED
        self.from_cache += bool(record.flags & Flag.ANSWER_CACHED)
        self.prompt_tokens += record.prompt_tokens
        self.cached_tokens += record.cached_tokens
        self.completion_tokens += record.completion_tokens


COUNTS: Final = (
    "requests", "finished", "refused", "aborted", "failed", "from_cache",
    "prompt_tokens", "cached_tokens", "completion_tokens", "core_us",
)  # fmt: skip
"""Columns of a row behind its keys."""

KEYS: Final[Mapping[str, Callable[[Entry | Meter], str]]] = {
    "tenant": lambda record: _shown(record.tenant),
    "key": lambda record: record.key_id.hex() if isinstance(record, Entry) and any(record.key_id) else "",
    "model": lambda record: _shown(record.model),
    "day": lambda record: moment(record.ended_us).date().isoformat(),
}
"""What a report can be ordered by."""

Row = tuple[tuple[str, ...], Use]


def rows(records: Iterable[Entry | Meter], by: Sequence[str]) -> list[Row]:
    """A row for each combination of ``by``, some of ``KEYS``, in order."""
    found: dict[tuple[str, ...], Use] = {}
    keys = [KEYS[name] for name in by]
    for record in records:
        key = tuple([one(record) for one in keys])
        use = found.get(key)
        if use is None:
            use = found[key] = Use()
        use.add(record)
    return sorted(found.items())


class Bill(msgspec.Struct):
    """What one tenant's recorded load costs, by microsecond and by the hour; ``hours`` are the started clock hours."""

    tenant: str
    core_us: int
    hours: int
    by_us: float
    by_hour: float


class Prices(msgspec.Struct):
    """Both ways to charge for the recorded load, at one price of the whole machine per hour.

    ``server_hours`` is the recorded life of the servers, ``busy`` the part of their cores' time that tenants used.
    """

    per_hour: float
    per_core_us: float
    cores: int
    server_hours: float
    busy: float
    bills: list[Bill]


def prices(records: Iterable[Entry | Meter], per_hour: float) -> Prices | None:
    """What tenants would pay by the microsecond, and by rented machine-hours; None where no server's life is recorded.

    By the hour a tenant pays for each clock hour (UTC) in which a request of its began or ran, as one does who rents
    the machine. By the microsecond it pays its share of the machine: price / 3600e6 / cores a core-microsecond.
    """
    core_ns: dict[bytes, int] = {}
    hours: dict[bytes, set[int]] = {}
    span_us, span_core_us, cores = 0, 0, 0
    for record in records:
        if isinstance(record, Meter) and record.tenant == IDLE:
            span_us += record.span_us
            span_core_us += record.span_us * record.cores
            cores = record.cores or cores
            continue
        core_ns[record.tenant] = core_ns.get(record.tenant, 0) + record.core_ns
        if isinstance(record, Entry) and record.core_ns:
            began_us = record.ended_us - sum(record.stages_us)
            first, last = began_us // _US_PER_HOUR, record.ended_us // _US_PER_HOUR
            hours.setdefault(record.tenant, set()).update(range(first, last + 1))
    if not cores:
        return None
    per_core_us = per_hour / _US_PER_HOUR / cores
    bills = [
        Bill(
            _shown(tenant),
            used // _NS_PER_US,
            len(hours.get(tenant, ())),
            used / _NS_PER_US * per_core_us,
            len(hours.get(tenant, ())) * per_hour,
        )
        for tenant, used in sorted(core_ns.items())
    ]
    busy = sum(core_ns.values()) / _NS_PER_US / span_core_us if span_core_us else math.nan
    return Prices(per_hour, per_core_us, cores, span_us / _US_PER_HOUR, busy, bills)


def moment(unix_us: int) -> datetime:
    """A time stamp of a record; in UTC. What lies beyond the year 9999 is its last microsecond."""
    unix_us = min(unix_us, _LAST_US)
    return datetime.fromtimestamp(unix_us // _US_PER_S, UTC) + timedelta(microseconds=unix_us % _US_PER_S)


def _us(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * _US_PER_S


def _shown(name: bytes) -> str:
    """A name for a screen: whatever a file says, no control character reaches a terminal."""
    return "".join([character if character.isprintable() else "?" for character in name.decode("utf-8", "replace")])
