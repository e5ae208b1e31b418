"""``zerolayer serve --takeover``: which server is meant, and whether it lets itself be taken over."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.contract import Contract
from zerolayer.contract_listen import AUTO
from zerolayer.errors import TakeoverFailed
from zerolayer.serve.admin_place import addresses, admin_socket
from zerolayer.serve.takeover.new import NewProcess

_ADDRESS: Final = re.compile(r"(https?://.*|[^/]*:[0-9]{1,5}|[0-9]{1,5})/?")


def ask(contract: Contract, named: str) -> tuple[Contract, NewProcess]:
    """The contract to serve by, and the process of it, which has been welcomed. Raises ``TakeoverFailed``.

    ``named`` is the path of a Unix socket, or "" for the admin socket that the contract has.
    """
    if _ADDRESS.fullmatch(named):
        raise TakeoverFailed(
            f"{named} is an address, and sockets can only be handed over through a Unix socket. Give --takeover the "
            "path that the running server prints as `takeover` when it starts, or no path for that of --port."
        )
    if named and contract.listen.admin_unix == AUTO:
        listen = msgspec.structs.replace(contract.listen, admin_unix=named)
        contract = msgspec.structs.replace(contract, listen=listen)
    path = Path(named).expanduser() if named else admin_socket(contract, os.environ)
    if path is None:
        raise TakeoverFailed("the contract has no admin socket. Give --takeover the one of the running server.")
    return contract, NewProcess(path, addresses(contract, os.environ))
