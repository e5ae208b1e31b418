"""The list of nodes that a service tells at ``GET /v1/nodes``, read. Sans-IO; malformed entries count as not told."""

from __future__ import annotations

from typing import Final

from zerolayer.client.head import json_object

NODES: Final = "/v1/nodes"
_MOST: Final = 1024  # nodes that a client keeps


def peers(body: bytes) -> list[str]:
    """The addresses of all nodes, the one that answered included. Raises ``BadReply``."""
    nodes = json_object(body).get("nodes")
    if not isinstance(nodes, list):
        return []
    urls = [node.get("url") if isinstance(node, dict) else node for node in nodes[:_MOST]]
    return [url for url in urls if isinstance(url, str)]
