"""``zerolayer k8s``: manifests on standard output, for ``kubectl apply -f -``."""

from __future__ import annotations

import argparse
import json
from typing import Final

from zerolayer.argument_types import Commands, whole

_DEFAULTS: Final = (
    ("name", "NAME", str, "name of the objects and of the pods", "zerolayer"),
    ("namespace", "NAME", str, "where they live", "default"),
    ("replicas", "N", int, "number of nodes", 3),
    ("port", "PORT", int, "port of every node", 8000),
    ("cpu", "QUANTITY", str, "processors of a node", "4"),
    ("memory", "QUANTITY", str, "memory of a node", "8Gi"),
    ("device", "RESOURCE", str, "of a device plugin, such as nvidia.com/gpu: one for each node", ""),
)
_SERVE: Final = (("model", "MODEL", str), ("slots", "N", whole(1, 1024)), ("slot-tokens", "N", whole(16, 1 << 20)))


def add_k8s(commands: Commands) -> None:
    """Add the command."""
    text = "Print Kubernetes manifests: a StatefulSet, a headless Service, a PodDisruptionBudget."
    parser = commands.add_parser("k8s", help="print Kubernetes manifests", description=text, allow_abbrev=False)
    parser.add_argument("--image", metavar="IMAGE", required=True, help="container image, built from deploy/Dockerfile")
    for name, placeholder, kind, note, default in _DEFAULTS:
        parser.add_argument(
            f"--{name}", metavar=placeholder, type=kind, default=default, help=f"{note}; default {default or 'none'}"
        )
    for name, placeholder, read in _SERVE:
        parser.add_argument(
            f"--{name}", metavar=placeholder, type=read, help=f"of `zerolayer serve`, in every node: --{name}"
        )
    parser.add_argument("--insecure", action="store_true", help="nodes that ask nobody for a key")
    parser.add_argument("--json", action="store_true", help="print JSON instead of YAML")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from zerolayer.cluster.manifests import KEY_FILES, Fleet, manifests
    from zerolayer.cluster.yaml_text import documents

    given = [(f"--{name}", getattr(options, name.replace("-", "_"))) for name, *_ in _SERVE]
    serve = tuple(part for flag, value in given if value is not None for part in (flag, str(value)))
    shape = {name: getattr(options, name) for name, *_ in _DEFAULTS}
    fleet = Fleet(options.image, serve=serve, insecure=options.insecure, **shape)
    objects = manifests(fleet)
    if options.json:
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2))
        return 0
    if not fleet.insecure:
        print("# Once, before they start; signing.key stays with you:")
        print("# zerolayer keys new && zerolayer keys issue --tenant fleet --node --days 0 > keys/node.key")
        files = " ".join(f"--from-file=keys/{file}" for file in KEY_FILES)
        print(f"# kubectl -n {fleet.namespace} create secret generic {fleet.keys} {files}")
    print("# kubectl apply -f -   Clients inside the cluster, without a balancer:")
    print(f"# zerolayer.Client({json.dumps(fleet.addresses())})")
    print(documents(objects), end="")
    return 0
