"""Which part of a server holds what: the components that ``/metrics`` tells the memory of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerolayer.observe.memory import Component

if TYPE_CHECKING:
    from zerolayer.serve.server import Server


def components(server: Server) -> tuple[Component, ...]:
    """Each with the rooms whose objects are its own; nothing is looked at before it is measured."""
    entrances, guard, loaded = server.entrances, server.guard, server.loaded
    authenticator = None if server.keyring is None else server.keyring.authenticator
    cache = None if server.keeping is None else server.keeping.cache
    room = "zerolayer."
    door = tuple(
        room + name
        for name in ("front.connection", "front.http2", "front.door", "front.exchange", "front.receipt", "front.caller")
    )
    return (
        Component(
            "connections",
            lambda: (entrances.connections, entrances.admin_connections),
            (*door, room + "wire.", room + "observe.stages", "hpack", "httptools"),
        ),
        Component(
            "requests",
            lambda: (server.dispatcher, server.held),
            (room + "front.", room + "text.", room + "wire.", room + "observe.stages", room + "guard.deadline.held"),
        ),
        Component("calendar", lambda: (server.admission,), (room + "guard.deadline.",)),
        Component("budgets", lambda: (server.book.budgets,), (room + "guard.budget.", room + "guard.identity")),
        Component("keys", lambda: (authenticator,), (room + "guard.auth.", room + "guard.identity")),
        Component("answers", lambda: (cache,), (room + "guard.answers", room + "model.engine")),
        Component("ledger", lambda: (server.records.ledger,), (room + "guard.ledger.",)),
        Component("programs", lambda: (server.programs, server.cost), (room + "model.",), lasting=True),
        Component("recorder", lambda: (server.recorder,), (room + "model.recorder",)),
        Component(
            "metrics", lambda: (server.metrics, server.meter, server.live), (room + "observe.", room + "front.live")
        ),
        Component(
            "text",
            lambda: (loaded.vocabulary, loaded.encoder, loaded.template, loaded.grammars, guard),
            (room + "text.",),
            lasting=True,
        ),
        Component("tables", lambda: (server.tables,), (room + "serve.", room + "front.", room + "wire."), lasting=True),
    )
