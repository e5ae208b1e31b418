"""The list of nodes that a service tells at ``GET /v1/nodes``, read. Sans-IO; malformed entries count as not told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from zerolayer.client.head import json_object
from zerolayer.wire.load import Load

NODES: Final = "/v1/nodes"
_MOST: Final = 1024  # nodes that a client keeps
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True)
class Peer:
    """A node that takes work, where it is, and what it said of its load ``age_ns`` ago (None: nothing yet)."""

    url: str
    load: Load | None = None
    age_ns: int = 0


def peers(body: bytes) -> list[Peer]:
    """The nodes that take work, the one that answered included. Raises ``BadReply``."""
    nodes = json_object(body).get("nodes")
    entries = nodes[:_MOST] if isinstance(nodes, list) else []
    return [peer for entry in entries if isinstance(entry, dict) and (peer := _peer(entry)) is not None]


def _peer(entry: dict[str, Any]) -> Peer | None:
    url = entry.get("address")
    if not isinstance(url, str) or entry.get("state", "ready") != "ready":
        return None
    age_ms = entry.get("age_ms", -1)
    told = ";".join(f"{name}={entry.get(name)}" for name in ("free", "next_ms", "derate"))
    load = Load.parse(told) if isinstance(age_ms, int) and 0 <= age_ms < 10**9 else None
    return Peer(url, load, 0 if load is None else age_ms * _NS_PER_MS)
