"""What is answered: the actions of every path and of every gRPC method, built from the rooms below."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from zerolayer.contract import Contract
from zerolayer.front.anthropic import Messages
from zerolayer.front.anthropic_form import MessageAnswers
from zerolayer.front.bodies import body_limits, request_decoder
from zerolayer.front.bookings import Bookings
from zerolayer.front.count_tokens import TokenCounter
from zerolayer.front.description import Description
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.doorkeeper import Doorkeeper
from zerolayer.front.exchange import Action
from zerolayer.front.gate import Gate, hosts_of
from zerolayer.front.generate import Answer, Generator
from zerolayer.front.grpc import Calls, Method
from zerolayer.front.grpc_health import HEALTH, GrpcHealth
from zerolayer.front.grpc_inference import SERVICE, GrpcFraming, inference_methods
from zerolayer.front.grpc_reflection import Reflection
from zerolayer.front.held import HeldClients
from zerolayer.front.inference import Inference
from zerolayer.front.keeping import Keeping
from zerolayer.front.leases import ADMIN_PATH as ADMIN_LEASES
from zerolayer.front.leases import PATH as LEASES
from zerolayer.front.leases import Leases
from zerolayer.front.live import LivePage
from zerolayer.front.nodes import Nodes
from zerolayer.front.responses import ResponseAnswers, Responses
from zerolayer.front.routes import Routes
from zerolayer.front.schema_form import Framing, HttpFraming, SchemaAnswers
from zerolayer.front.service import BODY_MEDIA, Health, Models, admin_table, service_table
from zerolayer.front.site import Site
from zerolayer.front.transcript import Transcripts
from zerolayer.guard.guard import Guard
from zerolayer.serve.entrances import Routers
from zerolayer.serve.nodes import NodeBook
from zerolayer.text.vocabulary_file import pack
from zerolayer.wire.openapi import openapi_document

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the answers are made from."""

    contract: Contract
    loaded: LoadedModel
    guard: Guard
    dispatcher: Dispatcher
    held: HeldClients
    site: Site
    helper: Executor
    compiler: Executor
    nodes: NodeBook
    keeping: Keeping | None = None


class Tables:
    """All answers of one server.

    ``render_metrics`` gives the body of ``/metrics``, ``live`` the live page; ``doorkeeper`` asks for keys.
    """

    def __init__(
        self,
        rooms: Rooms,
        clock_ns: Callable[[], int],
        render_metrics: Callable[[], bytes],
        live: LivePage,
        doorkeeper: Doorkeeper | None = None,
    ) -> None:
        self._rooms = rooms
        self._doorkeeper = doorkeeper
        self._limits = body_limits(rooms.contract, partial(rooms.site.metrics.limited, action="clamped"))
        self.models = self._build_models()
        self._transcripts = Transcripts(rooms.loaded.vocabulary, rooms.loaded.tool_format)
        guard = rooms.guard
        health = Health(guard, lambda: rooms.nodes.own)
        self.grpc_health = GrpcHealth(lambda: guard.closed, frozenset({SERVICE}))
        counter = TokenCounter(guard, self._limits, rooms.helper)
        self.calls = Calls(self._methods(counter), clock_ns, rooms.site.limits.body_bytes)
        leases = Leases(guard.budgets)
        self.service_paths = self._service(counter, health)
        between_nodes = {LEASES: {"POST": leases.service}}
        admin = {**admin_table(render_metrics, health, live.table()), ADMIN_LEASES: {"POST": leases.admin}}
        self.routers = self._build_routers({**self.service_paths, **between_nodes}, admin)

    def _service(self, counter: TokenCounter, health: Health) -> dict[str, Mapping[str, Action]]:
        inference = self._inference(HttpFraming(), counter)
        rooms, transcripts = self._rooms, self._transcripts
        served = rooms.guard.names.served
        answered = MessageAnswers(served, transcripts, rooms.guard.reader.shape.slot_tokens)
        messages = Messages(self._generator(answered), counter)
        answers = ResponseAnswers(rooms.site.wall_s, served, rooms.loaded.vocabulary, transcripts)
        responses = Responses(self._generator(answers), counter)
        description = Description(openapi_document(rooms.site.version, self._limits, _nameable(rooms.guard)))
        nodes = Nodes(rooms.nodes.body, rooms.nodes.announced, keyed=self._doorkeeper is not None)
        return service_table(
            self._generator(),
            messages,
            responses,
            inference,
            counter,
            self.models,
            health,
            description,
            Bookings(rooms.guard.admission),
            nodes,
        )

    def _methods(self, counter: TokenCounter) -> dict[str, Method]:
        methods = inference_methods(self._inference(GrpcFraming(), counter))
        return methods | self.grpc_health.methods() | Reflection((SERVICE, HEALTH)).methods()

    def _build_routers(
        self, table: Mapping[str, Mapping[str, Action]], admin: Mapping[str, Mapping[str, Action]]
    ) -> Routers:
        listen = self._rooms.contract.listen
        hosts, admin_hosts = hosts_of(listen)
        origins = self._rooms.site.origins
        return Routers(
            service=Routes(Gate(hosts, origins, BODY_MEDIA), table, self.calls, self._doorkeeper),
            # No browser and no foreign name reaches a Unix socket, and gRPC gives its path as the host.
            local=Routes(Gate(origins=origins, media=BODY_MEDIA), table, self.calls, self._doorkeeper),
            admin=Routes(Gate(admin_hosts), admin),
            local_admin=Routes(Gate(), admin),
        )

    def _inference(self, framing: Framing, counter: TokenCounter) -> Inference:
        rooms = self._rooms
        schema = self._generator(SchemaAnswers(framing, rooms.loaded.vocabulary))
        decoder = request_decoder(rooms.contract, self._limits)
        return Inference(schema, framing, decoder, counter, rooms.guard, self.models.etag)

    def _generator(self, answer: Answer | None = None) -> Generator:
        rooms = self._rooms
        return Generator(
            guard=rooms.guard,
            dispatcher=rooms.dispatcher,
            site=rooms.site,
            limits=self._limits,
            vocabulary=rooms.loaded.vocabulary,
            transcripts=self._transcripts,
            helper=rooms.helper,
            compiler=rooms.compiler,
            held=rooms.held,
            answer=answer,
            keeping=rooms.keeping,
        )

    def _build_models(self) -> Models:
        rooms, info = self._rooms, self._rooms.loaded.engine.describe()
        served_by: dict[str, str | int] = {
            "engine": info.engine,
            "kernels": info.kernels,
            "weights": info.weights,
            "threads": info.threads,
            "slots": info.slots,
        }
        longest = rooms.contract.limits.max_tokens
        return Models(rooms.guard, int(time.time()), served_by, pack(rooms.loaded.vocabulary), longest)


def _nameable(guard: Guard) -> tuple[str, ...]:
    """What a request may call the model; () for anything."""
    return () if "*" in guard.names.aliases else guard.names.listed()
