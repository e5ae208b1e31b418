"""What a node is called among others."""

from __future__ import annotations

import socket

from zerolayer.contract import Contract
from zerolayer.contract_listen import WILDCARDS


def own_address(contract: Contract, port: int) -> str:
    """The URL under which others reach the node that listens on ``port``."""
    named = contract.cluster.address or contract.tenants.node
    if named:
        return named
    host, scheme = contract.listen.host, "https" if contract.listen.certificate else "http"
    if host in WILDCARDS:
        host = socket.gethostname()
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
