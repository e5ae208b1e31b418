"""What a takeover needs of a server."""

from __future__ import annotations

from typing import Protocol

from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.grpc_health import GrpcHealth
from zerolayer.front.held import HeldClients
from zerolayer.front.pace import Pace
from zerolayer.guard.deadline.admission import Admission
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.guard import Guard
from zerolayer.model.cost import CostTable
from zerolayer.serve.entrances import Entrances
from zerolayer.serve.gateway import BudgetBook
from zerolayer.serve.nodes import NodeBook
from zerolayer.serve.records import Records


class Service(Protocol):
    """The rooms of one server (``serve/server.py``)."""

    admission: Admission
    book: BudgetBook
    cost: CostTable
    dispatcher: Dispatcher
    entrances: Entrances
    grpc_health: GrpcHealth
    guard: Guard
    held: HeldClients
    nodes: NodeBook
    pace: Pace
    records: Records
    slots: Calendar

    @property
    def port(self) -> int:
        """Port of the service."""

    def move_in(self) -> None:
        """Write ledger and budgets again, as soon as the process that was to take over lets go of them."""
