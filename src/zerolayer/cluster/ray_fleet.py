"""A fleet on a Ray cluster that runs already: one actor in one bundle of a placement group for each node.

Everything is detached: it outlives the command that made it, and Ray starts anew what died, on another machine where
the first is gone and another has room. Needs the extra ``ray``, here and on the cluster's machines.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zerolayer.cluster.ray_node import Node, Register
from zerolayer.errors import StartupError, UsageError

NAMESPACE: Final = "zerolayer"
_ASK_S: Final = 5.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Fleet:
    """``cpus`` and ``gpus`` of each of ``nodes`` nodes; ``port`` of the first, the next one has the next; 0: any."""

    name: str = "zerolayer"
    nodes: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    port: int = 0
    serve: tuple[str, ...] = ()

    @property
    def bundle(self) -> dict[str, float]:
        """What Ray is asked for, for one node."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})


@dataclass(frozen=True)
class Place:
    """One node of a running fleet. ``address`` is empty while it has none, ``alive`` whether its actor answers."""

    index: int
    address: str
    alive: bool


class RayCluster:
    """A connection to the cluster at ``address`` (``auto``: the one of this machine). Raises ``StartupError``."""

    def __init__(self, address: str) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
            self._util: Any = importlib.import_module("ray.util")
            self._strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        except ImportError:
            raise StartupError("Ray is not installed here. Run: pip install 'zerolayer[ray]'") from None
        try:
            self._ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
        except (ConnectionError, RuntimeError, ValueError):
            raise StartupError(
                f"No Ray cluster answers at {address!r}. Start one (ray start --head), or name one (--ray HOST:PORT)."
            ) from None

    def close(self) -> None:
        """Leave the cluster; the fleet stays."""
        self._ray.shutdown()

    def up(self, fleet: Fleet, seconds: float, progress: Progress) -> list[str]:
        """Place the nodes and wait until each is ready; their addresses. Raises ``StartupError``, ``UsageError``."""
        if self._actor(_register_name(fleet.name)) is not None:
            raise UsageError(f"A fleet {fleet.name!r} is up. See it: zerolayer ray status; end it: zerolayer ray down")
        group = self._util.placement_group(
            [fleet.bundle] * fleet.nodes, strategy="SPREAD", name=fleet.name, lifetime="detached"
        )
        if not group.wait(seconds):
            self._util.remove_placement_group(group)
            has = {kind: self._ray.available_resources().get(kind, 0) for kind in fleet.bundle}
            raise StartupError(
                f"The cluster has no room for {fleet.nodes} nodes of {fleet.bundle}: free are {has}. "
                "Ask for fewer (--nodes) or smaller ones (--cpus, --gpus)."
            )
        register = self._remote(Register, name=_register_name(fleet.name), num_cpus=0)
        actors = [self._node(fleet, index, group, register) for index in range(fleet.nodes)]
        addresses = []
        try:
            for index, actor in enumerate(actors):
                addresses.append(self._ray.get(actor.address.remote(), timeout=seconds))
                progress(f"node {index + 1} of {fleet.nodes}: {addresses[-1]}")
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            self.down(fleet.name)
            raise StartupError(
                f"Node {len(addresses)} did not become ready within {seconds:g} s; the fleet was taken down again. "
                "What its server said is in Ray's logs (ray logs); `zerolayer serve` with the same flags says it too."
            ) from None
        return addresses

    def status(self, name: str) -> list[Place]:
        """The nodes of a fleet. Raises ``UsageError`` when there is none of this name."""
        register = self._actor(_register_name(name))
        if register is None:
            raise UsageError(f"No fleet {name!r} is up on this cluster. Start one: zerolayer ray up --nodes 2")
        known: dict[int, str] = self._ray.get(register.addresses.remote(), timeout=_ASK_S)
        return [Place(index, address, self._alive(name, index)) for index, address in sorted(known.items())]

    def down(self, name: str) -> int:
        """End all nodes, each after its streams, at once; how many there were."""
        register = self._actor(_register_name(name))
        known = [] if register is None else sorted(self._ray.get(register.addresses.remote(), timeout=_ASK_S))
        nodes = [actor for actor in (self._actor(_node_name(name, index)) for index in known) if actor is not None]
        stopping = [actor.stop.remote() for actor in nodes]
        self._ray.wait(stopping, num_returns=len(stopping), timeout=_ASK_S * 6) if stopping else None
        for actor in (*nodes, register):
            if actor is not None:
                self._ray.kill(actor, no_restart=True)
        group = self._util.get_placement_group(name) if self._grouped(name) else None
        if group is not None:
            self._util.remove_placement_group(group)
        return len(nodes)

    def _node(self, fleet: Fleet, index: int, group: Any, register: Any) -> Any:
        strategy = self._strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        port = fleet.port + index if fleet.port else 0
        threads = ("--threads", str(max(1, int(fleet.cpus))))
        options = {"name": _node_name(fleet.name, index), "num_cpus": fleet.cpus, "num_gpus": fleet.gpus}
        return self._remote(
            PlacedNode, index, port, (*threads, *fleet.serve), register, scheduling_strategy=strategy, **options
        )

    def _remote(self, kind: type, *arguments: object, **options: object) -> Any:
        actor = self._ray.remote(kind).options(
            lifetime="detached", namespace=NAMESPACE, max_restarts=-1, max_concurrency=4, **options
        )
        return actor.remote(*arguments)

    def _actor(self, name: str) -> Any:
        try:
            return self._ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            return None

    def _alive(self, name: str, index: int) -> bool:
        actor = self._actor(_node_name(name, index))
        if actor is None:
            return False
        try:
            return bool(self._ray.get(actor.address.remote(), timeout=_ASK_S))
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            return False

    def _grouped(self, name: str) -> bool:
        table = self._util.placement_group_table()
        return any(group["name"] == name and group["state"] != "REMOVED" for group in table.values())


class PlacedNode(Node):
    """A node that asks Ray, where it is placed, for the address of its machine."""

    def __init__(self, index: int, port: int, serve: Sequence[str], register: Any) -> None:
        ray, util = importlib.import_module("ray"), importlib.import_module("ray.util")
        super().__init__(index, util.get_node_ip_address(), port, serve, register, ray.get)


def _register_name(fleet: str) -> str:
    return f"{fleet}-register"


def _node_name(fleet: str, index: int) -> str:
    return f"{fleet}-{index}"
