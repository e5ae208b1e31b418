"""Which part of a server holds what: the rooms of the components that ``/metrics`` tells the memory of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zerolayer.observe.memory import Component

_ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "connections": (
        "zerolayer.front.connection", "zerolayer.front.http2", "zerolayer.front.door", "zerolayer.front.exchange",
        "zerolayer.front.receipt", "zerolayer.front.caller", "zerolayer.wire.", "zerolayer.observe.stages", "hpack",
        "httptools",
    ),
    "requests": ("zerolayer.front.", "zerolayer.text.", "zerolayer.wire.", "zerolayer.observe.stages"),
    "calendar": ("zerolayer.guard.deadline.",),
    "budgets": ("zerolayer.guard.budget.", "zerolayer.guard.identity"),
    "keys": ("zerolayer.guard.auth.", "zerolayer.guard.identity"),
    "answers": ("zerolayer.guard.answers", "zerolayer.model.engine"),
    "ledger": ("zerolayer.guard.ledger.",),
    "programs": ("zerolayer.model.",),
    "recorder": ("zerolayer.model.recorder",),
    "metrics": ("zerolayer.observe.", "zerolayer.front.live"),
    "text": ("zerolayer.text.",),
    "tables": ("zerolayer.serve.", "zerolayer.front.", "zerolayer.wire."),
}  # fmt: skip
_LASTING: Final = frozenset({"programs", "text", "tables"})


def components(roots: Mapping[str, Iterable[object]]) -> tuple[Component, ...]:
    """A component for each name; ``roots`` are where its data begins."""
    return tuple(Component(name, tuple(found), _ROOMS[name], name in _LASTING) for name, found in roots.items())
