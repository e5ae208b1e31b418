"""Who answers what: the paths of every listener and the methods of gRPC, whatever model is served."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zerolayer.contract import Contract
from zerolayer.front.deploys import PATH as DEPLOY
from zerolayer.front.deploys import Begin, Deploys
from zerolayer.front.doorkeeper import Doorkeeper
from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.gate import Gate, hosts_of
from zerolayer.front.grpc import Calls, Method
from zerolayer.front.grpc_health import HEALTH, GrpcHealth
from zerolayer.front.grpc_inference import SERVICE
from zerolayer.front.grpc_reflection import Reflection
from zerolayer.front.health import Health
from zerolayer.front.leases import ADMIN_PATH as ADMIN_LEASES
from zerolayer.front.leases import PATH as LEASES
from zerolayer.front.leases import Leases
from zerolayer.front.live import LivePage
from zerolayer.front.routes import Routes
from zerolayer.front.service import BODY_MEDIA, admin_table
from zerolayer.front.site import Site
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.serve.entrances import Routers
from zerolayer.serve.nodes import NodeBook
from zerolayer.serve.room import ModelRoom


class Tables:
    """All routes of one server. ``room`` gives the model room that is answered from now.

    ``render_metrics`` gives the body of ``/metrics``, ``live`` the live page; ``begin`` a change of the model;
    ``doorkeeper`` asks for keys.
    """

    def __init__(
        self,
        contract: Contract,
        room: Callable[[], ModelRoom],
        site: Site,
        nodes: NodeBook,
        budgets: Budgets,
        render_metrics: Callable[[], bytes],
        live: LivePage,
        begin: Begin,
        doorkeeper: Doorkeeper | None = None,
    ) -> None:
        self._contract = contract
        self._room = room
        self._site = site
        self._doorkeeper = doorkeeper
        self.grpc_health = GrpcHealth(lambda: room().guard.closed, frozenset({SERVICE}))
        self.calls = Calls(self._methods(), site.clock_ns, site.limits.body_bytes)
        leases = Leases(budgets)
        self.service_paths = self._service()
        between_nodes = {LEASES: {"POST": leases.service}}
        health = Health(lambda: room().guard.closed, lambda: nodes.own)
        admin = {**admin_table(render_metrics, health, live.table()), ADMIN_LEASES: {"POST": leases.admin}}
        local_admin: dict[str, Mapping[str, Action]] = {**admin, DEPLOY: {"POST": Deploys(begin).deploy}}
        self.routers = self._build_routers({**self.service_paths, **between_nodes}, admin, local_admin)

    def _service(self) -> dict[str, Mapping[str, Action]]:
        """Every path of a model's answers, asked of whatever model is served when a request is complete."""
        return {
            path: {method: self._action(path, method) for method in actions}
            for path, actions in self._room().answers.paths.items()
        }

    def _action(self, path: str, method: str) -> Action:
        current = self._room

        def act(exchange: Exchange) -> None:
            room = current()
            if exchange.receipt is not None:
                exchange.receipt.model = room.model
            room.answers.paths[path][method](exchange)

        return act

    def _methods(self) -> dict[str, Method]:
        methods = {path: Method(action=self._call(path)) for path in self._room().answers.calls}
        return methods | self.grpc_health.methods() | Reflection((SERVICE, HEALTH)).methods()

    def _call(self, path: str) -> Action:
        current = self._room

        def act(exchange: Exchange) -> None:
            room = current()
            if exchange.receipt is not None:
                exchange.receipt.model = room.model
            room.answers.calls[path](exchange)

        return act

    def _build_routers(
        self,
        table: Mapping[str, Mapping[str, Action]],
        admin: Mapping[str, Mapping[str, Action]],
        local_admin: Mapping[str, Mapping[str, Action]],
    ) -> Routers:
        hosts, admin_hosts = hosts_of(self._contract.listen)
        origins = self._site.origins
        return Routers(
            service=Routes(Gate(hosts, origins, BODY_MEDIA), table, self.calls, self._doorkeeper),
            # No browser and no foreign name reaches a Unix socket, and gRPC gives its path as the host.
            local=Routes(Gate(origins=origins, media=BODY_MEDIA), table, self.calls, self._doorkeeper),
            admin=Routes(Gate(admin_hosts), admin),
            local_admin=Routes(Gate(), local_admin),
        )
