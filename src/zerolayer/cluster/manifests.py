"""Kubernetes objects for a set of nodes that need no balancer: each pod is one node with a DNS name of its own.

Reference: https://kubernetes.io/docs/reference/kubernetes-api/, apps/v1, v1, policy/v1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from zerolayer.errors import UsageError

DRAIN_S: Final = 20  # running replies have 10 s after SIGTERM; the rest is for the last bytes
_HOME: Final = "/var/lib/zerolayer"
_KEYS: Final = "/etc/zerolayer/keys"
KEY_FILES: Final = ("keyset.json", "revoked.json", "node.key")
"""Of the Secret: the two public files of ``zerolayer keys new``, and a key of ``zerolayer keys issue --node``."""
_USER: Final = 10001  # any but root; the home is a volume of its own, so the image need not know it
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,60}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_QUANTITY: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")

Manifest = dict[str, object]


@dataclass(frozen=True)
class Fleet:
    """What is asked of Kubernetes. ``cpu`` and ``memory`` are its quantities, both requested and the limit.

    ``device`` is a resource of a device plugin, such as ``nvidia.com/gpu``, of which every node gets one; empty for a
    node whose device are its processors. ``insecure`` nodes ask nobody for a key; the others have theirs, and the key
    set, from the Secret ``NAME-keys``. ``serve`` are further flags of ``zerolayer serve``. Raises ``UsageError`` for
    values that Kubernetes would refuse.
    """

    image: str
    name: str = "zerolayer"
    namespace: str = "default"
    replicas: int = 3
    port: int = 8000
    cpu: str = "4"
    memory: str = "8Gi"
    serve: tuple[str, ...] = ()
    device: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        for flag, value in (("--name", self.name), ("--namespace", self.namespace)):
            if not _LABEL.fullmatch(value):
                raise UsageError(
                    f"{flag} must begin with a letter and hold at most 42 lower case letters, digits and dashes"
                )
        for flag, value in (("--cpu", self.cpu), ("--memory", self.memory)):
            if not _QUANTITY.fullmatch(value) or not re.search("[1-9]", value):
                raise UsageError(f"{flag} must be a quantity of Kubernetes, such as 4, 500m or 8Gi")
        if not self.image or not self.image.isprintable() or " " in self.image:
            raise UsageError("--image must name a container image, such as registry.example/zerolayer:1")
        if self.device and not _RESOURCE.fullmatch(self.device):
            raise UsageError("--device must be a resource of a device plugin, such as nvidia.com/gpu")
        if not 1 <= self.port <= 65535:
            raise UsageError("--port must be from 1 to 65535")
        if not 1 <= self.replicas <= 1000:
            raise UsageError("--replicas must be from 1 to 1000")

    @property
    def keys(self) -> str:
        """The name of the Secret."""
        return f"{self.name}-keys"

    @property
    def domain(self) -> str:
        """The DNS name of all nodes together; a pod's own stands before it."""
        return f"{self.name}.{self.namespace}.svc"

    def addresses(self) -> list[str]:
        """The URL of every node, as a client inside the cluster reaches it."""
        return [f"http://{self.name}-{number}.{self.domain}:{self.port}" for number in range(self.replicas)]


def manifests(fleet: Fleet) -> list[Manifest]:
    """The headless Service, the PodDisruptionBudget and the StatefulSet, in the order in which to apply them."""
    return [_service(fleet), _budget(fleet), _stateful_set(fleet)]


def _labels(fleet: Fleet) -> dict[str, object]:
    return {"app.kubernetes.io/name": "zerolayer", "app.kubernetes.io/instance": fleet.name}


def _metadata(fleet: Fleet) -> Manifest:
    return {"name": fleet.name, "namespace": fleet.namespace, "labels": _labels(fleet)}


def _service(fleet: Fleet) -> Manifest:
    """No address of its own: it only gives each pod a name."""
    port = {"name": "http", "port": fleet.port, "targetPort": "http"}
    spec = {"clusterIP": "None", "selector": _labels(fleet), "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(fleet), "spec": spec}


def _budget(fleet: Fleet) -> Manifest:
    """Whoever empties machines takes one node at a time."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _labels(fleet)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(fleet), "spec": spec}


def _stateful_set(fleet: Fleet) -> Manifest:
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": DRAIN_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _labels(fleet)},
            }
        ],
        "containers": [_container(fleet)],
        "volumes": _volumes(fleet),
    }
    spec = {
        "serviceName": fleet.name,
        "replicas": fleet.replicas,
        "podManagementPolicy": "Parallel",  # nodes know nothing of one another; none waits for the one before
        "selector": {"matchLabels": _labels(fleet)},
        "template": {"metadata": {"labels": _labels(fleet)}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": _metadata(fleet), "spec": spec}


def _volumes(fleet: Fleet) -> list[Manifest]:
    home: Manifest = {"name": "home", "emptyDir": {}}
    if fleet.insecure:
        return [home]
    return [home, {"name": "keys", "secret": {"secretName": fleet.keys, "defaultMode": 0o440}}]


def _arguments(fleet: Fleet) -> list[str]:
    """Of ``zerolayer serve``. ``$(POD)`` is filled in by Kubernetes; all pods are found by the Service's records."""
    listen = ["--host", "0.0.0.0", "--port", str(fleet.port)]
    others = ["--peers", f"dns://{fleet.domain}:{fleet.port}"]
    own = ["--address", f"http://$(POD).{fleet.domain}:{fleet.port}"]
    keys = ["--key-set", f"{_KEYS}/{KEY_FILES[0]}", "--node-key", f"{_KEYS}/{KEY_FILES[2]}"]
    return ["serve", *listen, *others, *own, *(["--insecure"] if fleet.insecure else keys), *fleet.serve]


def _container(fleet: Fleet) -> Manifest:
    given = {"cpu": fleet.cpu, "memory": fleet.memory}
    if fleet.device:
        given[fleet.device] = "1"
    mounts: list[Manifest] = [{"name": "home", "mountPath": _HOME}]
    if not fleet.insecure:
        mounts.append({"name": "keys", "mountPath": _KEYS, "readOnly": True})
    return {
        "name": "zerolayer",
        "image": fleet.image,
        "args": _arguments(fleet),
        "env": [
            {"name": "HOME", "value": _HOME},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "http", "containerPort": fleet.port}],
        "resources": {"requests": given, "limits": given},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
        # Ten minutes to fetch, read and measure a model; after that readiness is a matter of one second.
        "startupProbe": _probe("/readyz", period_s=2, failures=300),
        "readinessProbe": _probe("/readyz", period_s=1, failures=1),
        "livenessProbe": _probe("/livez", period_s=5, failures=3),
    }


def _probe(path: str, *, period_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 1,
        "failureThreshold": failures,
    }
