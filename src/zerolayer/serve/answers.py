"""What one model answers: the actions of every path and of every gRPC method, built from the rooms below."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
from zerolayer.front.exchange import Action
from zerolayer.front.generate import Answer, Generator
from zerolayer.front.grpc_inference import GrpcFraming, inference_actions
from zerolayer.front.health import Health
from zerolayer.front.held import HeldClients
from zerolayer.front.inference import Inference
from zerolayer.front.keeping import Keeping
from zerolayer.front.models import Models
from zerolayer.front.nodes import Nodes
from zerolayer.front.responses import ResponseAnswers, Responses
from zerolayer.front.schema_form import Framing, HttpFraming, SchemaAnswers
from zerolayer.front.service import Service
from zerolayer.front.site import Site
from zerolayer.front.transcript import Transcripts
from zerolayer.guard.guard import Guard
from zerolayer.serve.nodes import NodeBook
from zerolayer.text.vocabulary_file import pack
from zerolayer.wire.openapi import openapi_document

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel


@dataclass(frozen=True, slots=True)
class Parts:
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


class Answers:
    """All that is answered by one model. ``paths`` has an action for each method of a path, ``calls`` for gRPC's."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._limits = body_limits(parts.contract, partial(parts.site.metrics.limited, action="clamped"))
        self.models = self._build_models()
        self._transcripts = Transcripts(parts.loaded.vocabulary, parts.loaded.tool_format)
        counter = TokenCounter(parts.guard, self._limits, parts.helper)
        self.calls: Mapping[str, Action] = inference_actions(self._inference(GrpcFraming(), counter))
        self.paths: Mapping[str, Mapping[str, Action]] = self._service(counter)

    def _service(self, counter: TokenCounter) -> dict[str, Mapping[str, Action]]:
        inference = self._inference(HttpFraming(), counter)
        parts, transcripts = self._parts, self._transcripts
        served = parts.guard.names.served
        answered = MessageAnswers(served, transcripts, parts.guard.reader.shape.slot_tokens)
        messages = Messages(self._generator(answered), counter)
        answers = ResponseAnswers(parts.site.wall_s, served, parts.loaded.vocabulary, transcripts)
        responses = Responses(self._generator(answers), counter)
        health = Health(lambda: parts.guard.closed, lambda: parts.nodes.own)
        description = Description(openapi_document(parts.site.version, self._limits, _nameable(parts.guard)))
        nodes = Nodes(parts.nodes.body, parts.nodes.announced, keyed=bool(parts.contract.tenants.key_set))
        return Service(
            generator=self._generator(),
            messages=messages,
            responses=responses,
            inference=inference,
            counter=counter,
            models=self.models,
            health=health,
            description=description,
            bookings=Bookings(parts.guard.admission),
            nodes=nodes,
        ).table()

    def _inference(self, framing: Framing, counter: TokenCounter) -> Inference:
        parts = self._parts
        schema = self._generator(SchemaAnswers(framing, parts.loaded.vocabulary))
        decoder = request_decoder(parts.contract, self._limits)
        return Inference(schema, framing, decoder, counter, parts.guard, self.models.etag)

    def _generator(self, answer: Answer | None = None) -> Generator:
        parts = self._parts
        return Generator(
            guard=parts.guard,
            dispatcher=parts.dispatcher,
            site=parts.site,
            limits=self._limits,
            vocabulary=parts.loaded.vocabulary,
            transcripts=self._transcripts,
            helper=parts.helper,
            compiler=parts.compiler,
            held=parts.held,
            answer=answer,
            keeping=parts.keeping,
        )

    def _build_models(self) -> Models:
        parts, info = self._parts, self._parts.loaded.engine.describe()
        served_by: dict[str, str | int] = {
            "engine": info.engine,
            "kernels": info.kernels,
            "weights": info.weights,
            "threads": info.threads,
            "slots": info.slots,
        }
        longest = parts.contract.limits.max_tokens
        return Models(parts.guard, int(time.time()), served_by, pack(parts.loaded.vocabulary), longest)


def _nameable(guard: Guard) -> tuple[str, ...]:
    """What a request may call the model; () for anything."""
    return () if "*" in guard.names.aliases else guard.names.listed()
