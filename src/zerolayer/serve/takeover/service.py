"""What a takeover needs of a server."""

from __future__ import annotations

from typing import Protocol

from zerolayer.front.grpc_health import GrpcHealth
from zerolayer.serve.entrances import Entrances
from zerolayer.serve.gateway import BudgetBook
from zerolayer.serve.nodes import NodeBook
from zerolayer.serve.records import Records
from zerolayer.serve.room import ModelRoom


class Service(Protocol):
    """The parts of one server (``serve/server.py``)."""

    book: BudgetBook
    entrances: Entrances
    grpc_health: GrpcHealth
    moving_in: bool  # ledger and budgets are still another process's, and this one's again
    nodes: NodeBook
    records: Records

    @property
    def room(self) -> ModelRoom:
        """What is bound to the model that is served."""

    @property
    def replacing(self) -> bool:
        """Whether a model is being replaced."""

    @property
    def port(self) -> int:
        """Port of the service."""

    def move_in(self) -> None:
        """Write ledger and budgets again, as soon as the process that was to take over lets go of them."""
