"""The section ``[cluster]`` of the contract: which nodes this one knows, and what they know it by."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

ADDRESS = r"https?://([0-9A-Za-z._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?"


class Cluster(Struct, frozen=True):
    """Where other nodes are found; nothing is shared with them but this list."""

    # http(s)://host:port of a node, or dns://, dns+srv://, k8s://, consul:// (cluster/sources.py)
    peers: tuple[Annotated[str, Meta(pattern=r"(https?|dns|dns\+srv|k8s|consul)://[!-~]{1,500}")], ...] = ()
    # http(s)://host:port under which others reach this node; empty: tenants.node, else listen.host and its port
    address: Annotated[str, Meta(pattern=f"({ADDRESS})?", max_length=300)] = ""
