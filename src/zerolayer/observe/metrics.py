"""Counters and histograms under vLLM's names, rendered on scrape (Prometheus text format 0.0.4).

Existing dashboards and routers read ``vllm:*``; what they have no name for is ``zerolayer:*``. While a request runs
its numbers are only put down; they are added up many at a time, at every look, and before they become too many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Final

import msgspec

from zerolayer.errors import BeyondHorizon, SlotsBusy
from zerolayer.observe.compute import compute_lines, labelled
from zerolayer.observe.exposition import Histogram, escape, family, head, single
from zerolayer.observe.live import Totals
from zerolayer.observe.memory import memory_lines
from zerolayer.observe.process import process_lines, resident_bytes
from zerolayer.observe.promises import Promises
from zerolayer.observe.sizes import Sizes
from zerolayer.observe.stages import STAGE_NAMES, Stage, StageClock

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

_FIRST_TOKEN_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
)  # fmt: skip
_BETWEEN_TOKENS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
_REQUEST_S: Final = (
    0.01, 0.025, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
)  # fmt: skip
_NS: Final = 1e-9
_NS_PER_S: Final = 1_000_000_000
_NO_ANSWER: Final = (0, 0, -1)
_TIMES: Final = len(_NO_ANSWER)  # where they begin in what is put down of a request: each stage, and the sum
_NUMBERS: Final = _TIMES + len(Stage) + 1
_FOLD: Final = 256  # requests; adding up so many takes the loop a fifth of a millisecond
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


class Metrics:
    """One service's totals. One writer: the event loop."""

    def __init__(self, model_name: str) -> None:
        self._name = escape(model_name)
        self._labels = f'model_name="{self._name}"'
        self.promises = Promises()
        self.sizes = Sizes()
        self.first_token = Histogram(_FIRST_TOKEN_S)
        self._between_tokens = Histogram(_BETWEEN_TOKENS_S)
        self._end_to_end = Histogram(_REQUEST_S, _NS_PER_S)
        self._prefill = Histogram(_REQUEST_S, _NS_PER_S)
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._finished: dict[str, int] = {"stop": 0, "length": 0, "tool_calls": 0, "abort": 0, "error": 0}
        self._refused: dict[str, int] = {}
        self._limited: dict[tuple[str, str], int] = {}
        self._abandoned: dict[str, int] = {"prefill": 0, "decode": 0}
        self._steps: dict[str, int] = {}
        self._stage_ns = [0] * len(Stage)
        self._ended: list[int] = []  # ``_NUMBERS`` each

    def serve(self, model_name: str) -> None:
        """From now on another model is served. Totals go on: they are the service's; the label says what it serves."""
        self._name = escape(model_name)
        self._labels = f'model_name="{self._name}"'

    def step(self, program: str, tokens: int) -> None:
        """A step ran and chose ``tokens`` tokens."""
        self._steps[program] = self._steps.get(program, 0) + 1
        self._generation_tokens += tokens

    def gap(self, nanoseconds: int, streams: int) -> None:
        """So many streams got a token, each this long after its last one."""
        self._between_tokens.count(nanoseconds * _NS, streams)

    def admitted(self, prompt_tokens: int) -> None:
        """A request got its slot."""
        self._prompt_tokens += prompt_tokens

    def finished(self, reason: str, stages: StageClock, tokens: tuple[int, int, int] = _NO_ANSWER) -> None:
        """An admitted request ended: ``stop``, ``length``, ``tool_calls``, ``abort`` (the client left) or ``error``.

        ``tokens`` of a complete answer: those of its prompt, how many of them were cached, and its own.
        """
        self._finished[reason] += 1
        ended = self._ended
        ended += tokens
        stages.put_down(ended)
        if len(ended) >= _FOLD * _NUMBERS:
            self._fold()

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
        return {name: histogram.bounds for name, histogram in self._shown().items()}

    def totals(self, busy_ns: int, arithmetic_ns: int, compute_ns: Mapping[str, int] = {}) -> Totals:
        """Everything so far, for the live page; ``compute_ns`` by tenant."""
        self._fold()
        return Totals(
            stage_ns=tuple(self._stage_ns),
            histograms={name: histogram.counts for name, histogram in self._shown().items()},
            finished=dict(self._finished),
            refused=dict(self._refused),
            steps=dict(self._steps),
            tokens=self._generation_tokens,
            bookings=self.promises.outcomes(),
            deadlines=self.promises.deadlines(),
            abandoned=self._left(),
            busy_ns=busy_ns,
            arithmetic_ns=arithmetic_ns,
            tenants=labelled(compute_ns),
        )

    def _fold(self) -> None:
        """Add up what was put down since the last time."""
        for each in (self.first_token, self.sizes, self.promises):
            each.fold()
        ended, self._ended = self._ended, []
        if not ended:
            return
        columns = [ended[place::_NUMBERS] for place in range(_NUMBERS)]
        for stage, spent in enumerate(columns[_TIMES:-1]):
            self._stage_ns[stage] += sum(spent)
        self._end_to_end.add(columns[-1])
        self._prefill.add(columns[_TIMES + Stage.PREFILL])
        shown = [*columns[:_TIMES], *[columns[_TIMES + stage] for stage in (Stage.WAIT, Stage.PREFILL, Stage.DECODE)]]
        generated = columns[_TIMES - 1]
        if min(generated) < 0:  # not all of them are complete
            complete = [tokens >= 0 for tokens in generated]
            shown = [[*compress(column, complete)] for column in shown]
        self.sizes.finished(*shown)

    def _shown(self) -> dict[str, Histogram]:
        return {"first_token": self.first_token, "between_tokens": self._between_tokens, "end_to_end": self._end_to_end}

    def _left(self) -> dict[str, int]:
        """Clients that left, by when; who was refused left when it did not come for what was booked for it."""
        return {"refused": self.promises.outcomes()["no_show"], **self._abandoned}

    def render(self, gauges: Gauges) -> bytes:
        """The whole page."""
        self._fold()
        return ("\n".join(self._lines(gauges)) + "\n").encode()

    def _lines(self, gauges: Gauges) -> Iterator[str]:
        labels = self._labels
        usage = gauges.used_tokens / max(1, gauges.total_tokens)
        yield from single("vllm:num_requests_running", "gauge", "Requests that hold a slot.", labels, gauges.running)
        yield from single("vllm:num_requests_waiting", "gauge", "Always 0: there is no queue.", labels, 0)
        yield from single("vllm:kv_cache_usage_perc", "gauge", "Slot tokens in use, 1 = all.", labels, usage)
        yield from self._histogram(
            "vllm:time_to_first_token_seconds", "First byte read to first token.", self.first_token
        )
        yield from self._histogram("vllm:inter_token_latency_seconds", "Between two tokens.", self._between_tokens)
        yield from self._histogram("vllm:e2e_request_latency_seconds", "First byte to last byte.", self._end_to_end)
        yield from single("vllm:prompt_tokens_total", "counter", "Prompt tokens.", labels, self._prompt_tokens)
        yield from single("vllm:generation_tokens_total", "counter", "Tokens chosen.", labels, self._generation_tokens)
        yield from family(
            "vllm:request_success_total",
            "counter",
            "Requests that ended.",
            labels,
            "finished_reason",
            self._finished.items(),
        )
        yield from self._histogram("vllm:request_prefill_time_seconds", "Steps up to the first token.", self._prefill)
        yield from self.sizes.lines(labels)
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
        yield from self._genai_lines()
        yield from self._own_lines(gauges)
        yield from self._node_lines(gauges.node)
        yield from process_lines(labels, sum(self._finished.values()))
        resident = resident_bytes()
        if resident is not None:
            yield from single("zerolayer:resident_bytes", "gauge", "Memory of the process.", labels, resident)
            yield from memory_lines(labels, gauges.memory, gauges.engine_bytes, resident)

    def _genai_lines(self) -> Iterator[str]:
        """OpenTelemetry's names for the same (semantic conventions for generative AI), as Prometheus spells them."""
        labels = f'gen_ai_request_model="{self._name}",gen_ai_provider_name="zerolayer"'
        for name, about, histogram in (
            ("request_duration", "First byte to last byte.", self._end_to_end),
            ("time_to_first_token", "First byte read to first token.", self.first_token),
            ("time_per_output_token", "Steps after the first token, by token.", self.sizes.token_time),
        ):
            yield from head(f"gen_ai_server_{name}_seconds", "histogram", about)
            yield from histogram.lines(f"gen_ai_server_{name}_seconds", labels)

    def _own_lines(self, gauges: Gauges) -> Iterator[str]:
        labels = self._labels
        stages = ((name, spent * _NS) for name, spent in zip(STAGE_NAMES, self._stage_ns, strict=True))
        yield from family("zerolayer:stage_seconds_total", "counter", "Time by stage.", labels, "stage", stages)
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
        yield from self.promises.lines(labels)
        for name, about, spent in (
            ("busy_seconds_total", "Wall time with a request in flight.", gauges.busy_ns),
            ("arithmetic_seconds_total", "The part of it that lay inside steps.", gauges.arithmetic_ns),
        ):
            yield from single(f"zerolayer:{name}", "counter", about, labels, spent * _NS)
        if gauges.glue_share is not None:
            yield from single("zerolayer:glue_ratio", "gauge", "Busy time not arithmetic.", labels, gauges.glue_share)

    def _step_lines(self, gauges: Gauges) -> Iterator[str]:
        labels = self._labels
        yield from family(
            "zerolayer:program_steps_total",
            "counter",
            "Steps by program.",
            labels,
            "program",
            sorted(self._steps.items()),
        )
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

    def _histogram(self, name: str, about: str, histogram: Histogram) -> Iterator[str]:
        yield from head(name, "histogram", about)
        yield from histogram.lines(name, self._labels)
