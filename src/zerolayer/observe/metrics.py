"""Counters and histograms under vLLM's names, rendered on scrape (Prometheus text format 0.0.4).

Existing dashboards and routers read ``vllm:*``; what they have no name for is ``zerolayer:*``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from zerolayer.errors import BeyondHorizon, SlotsBusy
from zerolayer.observe.answered import Answered
from zerolayer.observe.compute import compute_lines, labelled
from zerolayer.observe.exposition import escape, family, head, merged, single
from zerolayer.observe.live import Totals
from zerolayer.observe.memory import memory_lines
from zerolayer.observe.process import process_lines, resident_bytes
from zerolayer.observe.stages import Stage, StageClock

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

_NS: Final = 1e-9
_SHOWN: Final = 8  # models whose answers stand on the page: the last ones that were served
_LACK_OF_SLOTS: Final = (SlotsBusy.code, BeyondHorizon.code)


class ProgramState(msgspec.Struct, frozen=True):
    """What the model room says of its programs: which are in use, which failed, and how often they were tried."""

    in_use: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    heartbeats: int = 0


class EngineState(msgspec.Struct, frozen=True):
    """The engine's threads, the cores that those which work had in steps (0: not known), and if others share these."""

    working: int = 0
    resting: int = 0
    cores_had: float = 0.0
    crowded: bool = False


class AnswerState(msgspec.Struct, frozen=True):
    """The cache of whole answers."""

    hits: int
    misses: int
    bytes: int


class KeyState(msgspec.Struct, frozen=True):
    """What auth says: keys found by digest, keys looked at, signatures verified."""

    hits: int = 0
    misses: int = 0
    verified: int = 0


class NodeState(msgspec.Struct, frozen=True):
    """The device of this node, and how many nodes it knows in each state."""

    derate: float = 1.0
    quarantined: bool = False
    nodes: Mapping[str, int] = {}


class Gauges(msgspec.Struct, frozen=True):
    """What the rooms above report at a scrape."""

    running: int = 0
    used_tokens: int = 0
    total_tokens: int = 1
    free_slots: int = 0
    slots: int = 0
    slot_tokens: int = 0
    connections: int = 0
    glue_share: float | None = None
    busy_ns: int = 0
    arithmetic_ns: int = 0
    programs: ProgramState = ProgramState()
    cores: int = 0
    accounted_ns: int = 0  # wall time that ``compute_ns`` is about
    compute_ns: Mapping[str, int] = {}  # core-nanoseconds by tenant; they sum to accounted_ns x cores
    ledger_records: int | None = None
    spans: Mapping[str, int] = {}  # by what became of them, where there are any
    answers: AnswerState | None = None
    keys: KeyState = KeyState()
    memory: Mapping[str, int] = {}  # bytes by component of what is not the engine
    engine_bytes: int = 0
    chunk_tokens: int = 0
    step_ns: Mapping[str, int] = {}  # what a step usually takes, by kind
    engine: EngineState = EngineState()
    node: NodeState = NodeState()


class Metrics(Answered):
    """One service's totals, and what its first model answers; ``of`` has that of the others. One writer: the loop."""

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name)
        self._answered: dict[str, Answered] = {model_name: self}  # in the order in which they were served last
        self._labels = f'model_name="{escape(model_name)}"'
        self._refused: dict[str, int] = {}
        self._limited: dict[tuple[str, str], int] = {}
        self._abandoned: dict[str, int] = {"prefill": 0, "decode": 0}

    def of(self, model_name: str) -> Answered:
        """What the model of this name answers; nothing of it is shown before it is served."""
        return self._answered.get(model_name) or Answered(model_name)

    def serve(self, model_name: str, answered: Answered) -> None:
        """From now on another model is served; what the one before it still answers is counted under its own name."""
        self._answered.pop(model_name, None)
        self._answered[model_name] = answered
        self._labels = f'model_name="{escape(model_name)}"'

    def refused(self, code: str) -> None:
        """A request ended with an error of its own; ``code`` is one of the error tree's, so the label stays bounded."""
        self._refused[code] = self._refused.get(code, 0) + 1

    def limited(self, limit: str, action: str) -> None:
        """A limit of the contract, or of a key, was met: the request was ``refused``, or its value ``clamped``."""
        self._limited[limit, action] = self._limited.get((limit, action), 0) + 1

    def abandoned(self, stages: StageClock) -> None:
        """A client left before its reply was complete."""
        self._abandoned["prefill" if stages.computing is Stage.PREFILL else "decode"] += 1

    def bounds_s(self) -> dict[str, tuple[float, ...]]:
        """The buckets of ``totals``' histograms, seconds."""
        return {name: histogram.bounds for name, histogram in self.shown().items()}

    def totals(self, busy_ns: int, arithmetic_ns: int, compute_ns: Mapping[str, int] = {}) -> Totals:
        """Everything so far, of all models, for the live page; ``compute_ns`` by tenant."""
        every = list(self._answered.values())
        for each in every:
            each.fold()
        shown = [each.shown() for each in every]
        return Totals(
            stage_ns=_summed(each.stage_ns for each in every),
            histograms={name: _summed(each[name].counts for each in shown) for name in shown[0]},
            finished=_joined(each.ended for each in every),
            refused=dict(self._refused),
            steps=_joined(each.steps for each in every),
            tokens=sum(each.generation_tokens for each in every),
            bookings=_joined(each.promises.outcomes() for each in every),
            deadlines=_joined(each.promises.deadlines() for each in every),
            abandoned=self._left(),
            busy_ns=busy_ns,
            arithmetic_ns=arithmetic_ns,
            tenants=labelled(compute_ns),
        )

    def _left(self) -> dict[str, int]:
        """Clients that left, by when; who was refused left when it did not come for what was booked for it."""
        missed = sum(each.promises.outcomes()["no_show"] for each in self._answered.values())
        return {"refused": missed, **self._abandoned}

    def render(self, gauges: Gauges) -> bytes:
        """The whole page."""
        for each in self._answered.values():
            each.fold()
        return ("\n".join(self._lines(gauges)) + "\n").encode()

    def _lines(self, gauges: Gauges) -> Iterator[str]:
        labels = self._labels
        usage = gauges.used_tokens / max(1, gauges.total_tokens)
        yield from single("vllm:num_requests_running", "gauge", "Requests that hold a slot.", labels, gauges.running)
        yield from single("vllm:num_requests_waiting", "gauge", "Always 0: there is no queue.", labels, 0)
        yield from single("vllm:kv_cache_usage_perc", "gauge", "Slot tokens in use, 1 = all.", labels, usage)
        yield from merged([each.lines() for each in [*self._answered.values()][-_SHOWN:]])
        yield from self.promises.refusal_lines(labels)
        refused = sum(self._refused.get(code, 0) for code in _LACK_OF_SLOTS)
        yield from single("vllm:admission_rejections_total", "counter", "Refused for lack of slots.", labels, refused)
        yield from single("vllm:corrupted_requests_total", "counter", "Always 0: a step that fails ends.", labels, 0)
        yield from single("vllm:num_preemptions_total", "counter", "Always 0: a slot is kept to the end.", labels, 0)
        yield from single(
            "vllm:cache_config_info",
            "gauge",
            "A slot is one block.",
            f'{labels},block_size="{gauges.slot_tokens}",num_gpu_blocks="{gauges.slots}"',
            1,
        )
        yield from single(
            "vllm:lora_requests_info",
            "gauge",
            "There are no adapters.",
            f'{labels},max_lora="0",running_lora_adapters="",waiting_lora_adapters=""',
            0,
        )
        yield from self._own_lines(gauges)
        yield from self._node_lines(gauges.node)
        ended = sum(sum(each.ended.values()) for each in self._answered.values())
        yield from process_lines(labels, ended)
        resident = resident_bytes()
        if resident is not None:
            yield from single("zerolayer:resident_bytes", "gauge", "Memory of the process.", labels, resident)
            yield from memory_lines(labels, gauges.memory, gauges.engine_bytes, resident)

    def _own_lines(self, gauges: Gauges) -> Iterator[str]:
        labels = self._labels
        yield from family(
            "zerolayer:refused_total",
            "counter",
            "Requests with an error.",
            labels,
            "reason",
            sorted(self._refused.items()),
        )
        yield from head("zerolayer:limit_total", "counter", "Requests that met a limit, by what was done.")
        for (limit, action), times in sorted(self._limited.items()):
            yield f'zerolayer:limit_total{{{labels},limit="{limit}",action="{action}"}} {times}'
        yield from self._step_lines(gauges)
        keys = gauges.keys
        yield from single("zerolayer:auth_cache_hits_total", "counter", "Keys known already.", labels, keys.hits)
        yield from single("zerolayer:auth_cache_misses_total", "counter", "Keys looked at.", labels, keys.misses)
        yield from single("zerolayer:auth_verifications_total", "counter", "Signatures.", labels, keys.verified)
        changing = gauges.slots - gauges.free_slots - gauges.running
        states = {"free": gauges.free_slots, "running": gauges.running, "changing": max(0, changing)}
        yield from family("zerolayer:slots", "gauge", "Slots by what they do.", labels, "state", states.items())
        yield from single(
            "zerolayer:kv_fragmentation_ratio", "gauge", "Always 0: a slot is one piece of memory.", labels, 0
        )
        yield from family(
            "zerolayer:abandoned_total", "counter", "Clients that left.", labels, "phase", self._left().items()
        )
        yield from single("zerolayer:free_slots", "gauge", "Slots free now.", labels, gauges.free_slots)
        yield from single("zerolayer:connections", "gauge", "Open connections.", labels, gauges.connections)
        yield from compute_lines(labels, gauges.cores, gauges.accounted_ns, gauges.compute_ns)
        yield from self._record_lines(gauges)
        for name, about, spent in (
            ("busy_seconds_total", "Wall time with a request in flight.", gauges.busy_ns),
            ("arithmetic_seconds_total", "The part of it that lay inside steps.", gauges.arithmetic_ns),
        ):
            yield from single(f"zerolayer:{name}", "counter", about, labels, spent * _NS)
        if gauges.glue_share is not None:
            yield from single("zerolayer:glue_ratio", "gauge", "Busy time not arithmetic.", labels, gauges.glue_share)

    def _step_lines(self, gauges: Gauges) -> Iterator[str]:
        labels = self._labels
        yield from single("zerolayer:chunk_tokens", "gauge", "A full chunk of a prompt.", labels, gauges.chunk_tokens)
        usual = [(kind, spent * _NS) for kind, spent in gauges.step_ns.items()]
        yield from family("zerolayer:step_seconds", "gauge", "What a step usually takes.", labels, "kind", usual)
        yield from self._thread_lines(gauges.engine)
        programs = gauges.programs
        dropped = [(name, 0) for name in programs.in_use] + [(name, 1) for name in programs.dropped]
        yield from family(
            "zerolayer:programs_dropped_total",
            "counter",
            "Programs that failed a heartbeat.",
            labels,
            "program",
            sorted(dropped),
        )
        yield from single("zerolayer:heartbeats_total", "counter", "Programs tried.", labels, programs.heartbeats)

    def _thread_lines(self, engine: EngineState) -> Iterator[str]:
        labels, states = self._labels, [("working", engine.working), ("resting", engine.resting)]
        yield from family("zerolayer:engine_threads", "gauge", "The engine's threads.", labels, "state", states)
        yield from single("zerolayer:engine_cores_had", "gauge", "Cores they had in steps.", labels, engine.cores_had)
        yield from single("zerolayer:cores_shared", "gauge", "Others run on them.", labels, int(engine.crowded))

    def _node_lines(self, node: NodeState) -> Iterator[str]:
        labels = self._labels
        yield from single("zerolayer:derate_ratio", "gauge", "Share of the device's full speed.", labels, node.derate)
        yield from single("zerolayer:quarantined", "gauge", "Device takes no work.", labels, int(node.quarantined))
        yield from family("zerolayer:nodes", "gauge", "Known nodes.", labels, "state", sorted(node.nodes.items()))

    def _record_lines(self, gauges: Gauges) -> Iterator[str]:
        labels = self._labels
        answers = gauges.answers
        if answers is not None:
            found = [("hit", answers.hits), ("miss", answers.misses)]
            yield from family("zerolayer:answer_cache_total", "counter", "Kept answers.", labels, "found", found)
            yield from single("zerolayer:answer_cache_bytes", "gauge", "What they take.", labels, answers.bytes)
        if gauges.ledger_records is not None:
            yield from single(
                "zerolayer:ledger_records_total", "counter", "Records written.", labels, gauges.ledger_records
            )
        if gauges.spans:
            yield from family(
                "zerolayer:spans_total", "counter", "Traced requests.", labels, "outcome", gauges.spans.items()
            )


def _summed(rows: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Column by column."""
    return tuple(map(sum, zip(*rows, strict=True)))


def _joined(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Name by name."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)
