"""``zerolayer ray up|status|down``: a fleet on a Ray cluster that runs already."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from zerolayer.argument_types import Commands, number, whole

if TYPE_CHECKING:
    from zerolayer.cluster.ray_fleet import RayCluster


VERSION: Final = 1  # of the JSON
_UP: Final = (
    ("nodes", "N", whole(1, 1000), "number of nodes", 1),
    ("cpus", "N", number(0.001, 1e6), "processors of a node", 1.0),
    ("gpus", "N", number(0, 1e6), "GPUs of a node", 0.0),
    ("port", "PORT", whole(0, 65535), "port of the first node, the next one has the next; 0 = any free one", 0),
    ("wait", "SECONDS", number(0.001, 1e6), "for room in the cluster and for each node to be ready", 300.0),
)


def add_ray(commands: Commands) -> None:
    """Add the commands."""
    text = "Nodes on a Ray cluster that runs already. Ray places and replaces them; no request passes it."
    ray = commands.add_parser("ray", help="run nodes on a Ray cluster", description=text, allow_abbrev=False)
    verbs = ray.add_subparsers(title="commands", metavar="COMMAND", required=True)
    up = _verb(verbs, "up", "place nodes, wait until they are ready, print their addresses", _up)
    for name, placeholder, kind, note, default in _UP:
        up.add_argument(f"--{name}", metavar=placeholder, type=kind, default=default, help=f"{note}; default {default}")
    up.add_argument("serve", nargs="*", metavar="-- FLAGS", help="further flags of `zerolayer serve`, for every node")
    _verb(verbs, "status", "print the nodes and whether they live", _status)
    _verb(verbs, "down", "end all nodes, each after its streams", _down)


def _verb(
    verbs: Commands, name: str, text: str, run: Callable[[RayCluster, argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.add_argument("--ray", metavar="HOST:PORT", default="auto", help="the cluster; default: this machine's")
    parser.add_argument("--name", default="zerolayer", help="of the fleet; default zerolayer")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda options: _connected(run, options))
    return parser


def _connected(run: Callable[[RayCluster, argparse.Namespace], int], options: argparse.Namespace) -> int:
    from zerolayer.cluster.ray_fleet import RayCluster

    cluster = RayCluster(options.ray)
    try:
        return run(cluster, options)
    finally:
        cluster.close()


def _up(cluster: RayCluster, options: argparse.Namespace) -> int:
    from zerolayer.cluster.ray_fleet import Fleet

    fleet = Fleet(options.name, options.nodes, options.cpus, options.gpus, options.port, tuple(options.serve))
    addresses = cluster.up(fleet, options.wait, lambda line: print(line, file=sys.stderr, flush=True))
    if options.json:
        print(json.dumps({"version": VERSION, "addresses": addresses}))
        return 0
    print(f"zerolayer.Client({json.dumps(addresses)})")
    return 0


def _status(cluster: RayCluster, options: argparse.Namespace) -> int:
    places = cluster.status(options.name)
    if options.json:
        nodes = [{"node": place.index, "address": place.address, "alive": place.alive} for place in places]
        print(json.dumps({"version": VERSION, "nodes": nodes}))
    else:
        for place in places:
            print(f"{place.index:3d}  {place.address:40s} {'alive' if place.alive else 'being replaced'}")
    return 0 if all(place.alive for place in places) else 1


def _down(cluster: RayCluster, options: argparse.Namespace) -> int:
    ended = cluster.down(options.name)
    document = {"version": VERSION, "ended": ended}
    print(json.dumps(document) if options.json else f"nodes that ended: {ended}")
    return 0
