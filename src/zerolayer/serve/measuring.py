"""What ``/metrics`` says of a server, looked up when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zerolayer.front.keeping import Keeping
from zerolayer.front.live import LivePage
from zerolayer.observe.compute import ComputeMeter
from zerolayer.observe.glue import GlueMeter
from zerolayer.observe.memory import GlueMemory
from zerolayer.observe.metrics import AnswerState, EngineState, Gauges, KeyState, Metrics, NodeState, ProgramState
from zerolayer.serve.entrances import Entrances
from zerolayer.serve.gateway import BudgetBook, Keyring
from zerolayer.serve.memory import components
from zerolayer.serve.nodes import NodeBook
from zerolayer.serve.records import Records
from zerolayer.serve.room import ModelRoom
from zerolayer.serve.rooms import Rooms
from zerolayer.serve.tables import Tables


class Measured(Protocol):
    """The parts of a server that are looked at."""

    rooms: Rooms
    metrics: Metrics
    glue: GlueMeter
    meter: ComputeMeter
    book: BudgetBook
    keyring: Keyring | None
    records: Records
    nodes: NodeBook
    entrances: Entrances
    tables: Tables
    live: LivePage


class Measuring:
    """All methods run on the loop; ``look`` before the first ``render``."""

    def __init__(self, server: Measured, clock_ns: Callable[[], int]) -> None:
        self._server = server
        self._clock_ns = clock_ns

    def look(self) -> None:
        """From now on measure the memory of the rooms that there are."""
        self._memory = GlueMemory(components(self._holders()))

    def render(self) -> bytes:
        """The body of ``/metrics``."""
        server = self._server
        room, now, ledger = server.rooms.current, self._clock_ns(), server.records.ledger
        info = room.info
        server.meter.rest(server.rooms.step_began_ns() or now)
        return server.metrics.render(
            Gauges(
                running=server.rooms.running,
                used_tokens=server.rooms.used_tokens,
                total_tokens=info.slots * info.slot_tokens,
                free_slots=room.admission.calendar.free,
                slots=info.slots,
                slot_tokens=info.slot_tokens,
                chunk_tokens=info.chunk_tokens,
                step_ns=room.cost.usual_ns(),
                engine=_engine(room),
                connections=len(server.entrances.connections),
                glue_share=server.glue.share(now),
                busy_ns=server.glue.busy_ns(now),
                arithmetic_ns=server.glue.arithmetic_ns,
                programs=ProgramState(room.programs.names, room.programs.dropped, room.heartbeat.beats),
                cores=server.meter.cores,
                accounted_ns=server.meter.wall_ns,
                compute_ns=server.meter.totals,
                answers=_answers(room.keeping),
                spans=server.records.spans(),
                ledger_records=None if ledger is None else ledger.records,
                keys=self._key_state(),
                memory=self._memory.measure(),
                engine_bytes=sum(each.info.memory_bytes for each in server.rooms),
                node=NodeState(server.nodes.derate, room.supervisor.quarantined, server.nodes.counts()),
            )
        )

    def _holders(self) -> dict[str, tuple[object, ...]]:
        """Where the data of each component begins."""
        server = self._server
        rooms = list(server.rooms)
        words = [(room.loaded.vocabulary, room.loaded.encoder, room.loaded.template) for room in rooms]
        return {
            "connections": (server.entrances.connections, server.entrances.admin_connections),
            "requests": tuple(part for room in rooms for part in (room.dispatcher, room.held)),
            "calendar": tuple(room.admission for room in rooms),
            "budgets": (server.book.budgets,),
            "keys": (None if server.keyring is None else server.keyring.authenticator,),
            "answers": tuple(room.keeping.cache for room in rooms if room.keeping is not None),
            "ledger": (server.records.ledger,),
            "programs": tuple(part for room in rooms for part in (room.programs, room.cost)),
            "recorder": tuple(room.recorder for room in rooms),
            "metrics": (server.metrics, server.meter, server.live),
            "text": (*(part for parts in words for part in parts), *(room.loaded.grammars for room in rooms)),
            "tables": (server.tables, *(room.answers for room in rooms)),
        }

    def _key_state(self) -> KeyState:
        keyring = self._server.keyring
        if keyring is None:
            return KeyState()
        counts = keyring.authenticator.counts
        return KeyState(counts.hits, counts.misses, counts.verified)


def _engine(room: ModelRoom) -> EngineState:
    engine = room.loaded.engine
    return EngineState(room.info.threads - engine.resting, engine.resting, engine.cores_had, engine.crowded)


def _answers(keeping: Keeping | None) -> AnswerState | None:
    if keeping is None:
        return None
    cache = keeping.cache
    return AnswerState(cache.hits, cache.misses, cache.bytes)
