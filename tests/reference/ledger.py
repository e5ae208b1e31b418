"""Records of requests that nobody made, and a wall clock for their ledger."""

from __future__ import annotations

from zerolayer.guard.ledger.ledger import Rules
from zerolayer.guard.ledger.record import RECORD_BYTES, Entry

NOON = 1_790_000_000.0  # 2026-09-21, Unix seconds


class Wall:
    """A wall clock that moves when told."""

    def __init__(self, now_s: float = NOON) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def entry(number: int = 0, tenant: str = "bank", **fields) -> Entry:
    return Entry(
        tenant.encode(),
        request_id=b"request-%d" % number,
        model=b"smollm2",
        route=b"chat.completions",
        code=b"stop",
        **{"status": 200, "prompt_tokens": 20, "completion_tokens": number, "core_ns": 1_000_000, **fields},
    )


def small(records: int) -> Rules:
    """Rules by which a segment has room for so many records."""
    return Rules(segment_bytes=(records + 1) * RECORD_BYTES)
