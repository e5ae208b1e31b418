"""Where the Unix socket of the admin is, for the server that listens there and for whoever looks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zerolayer.contract import Contract
from zerolayer.contract_listen import AUTO, OFF

MOST_BYTES: Final = 107  # of a path that a socket can have (unix(7))


def admin_socket(contract: Contract, environ: Mapping[str, str]) -> Path | None:
    """None where it is switched off, or none was named for a port that the system chooses.

    By itself it is ``zerolayer/PORT.sock`` in ``$XDG_RUNTIME_DIR``, or, without one, ``zerolayer/admin-PORT.sock`` in
    ``$XDG_STATE_HOME`` (else ``~/.local/state``), beside ledger and budgets.
    """
    named, port = contract.listen.admin_unix, contract.listen.port
    if named == OFF or (named == AUTO and port == 0):
        return None
    if named != AUTO:
        return Path(named).expanduser()
    runtime, given = Path(environ.get("XDG_RUNTIME_DIR", "")), Path(environ.get("XDG_STATE_HOME", ""))
    if runtime.is_absolute():
        return runtime / "zerolayer" / f"{port}.sock"
    state = given if given.is_absolute() else Path(environ.get("HOME", "/")) / ".local" / "state"
    return state / "zerolayer" / f"admin-{port}.sock"


def fits(path: Path) -> bool:
    """Whether a socket can have this path."""
    return len(os.fsencode(path)) <= MOST_BYTES


def addresses(contract: Contract, environ: Mapping[str, str]) -> dict[str, str]:
    """Where a server listens, by flag: two processes can only hand over where they say the same."""
    listen = contract.listen
    return {
        "--host": listen.host,
        "--port": str(listen.port),
        "--admin": listen.admin,
        "--unix": listen.unix,
        "--admin-unix": str(admin_socket(contract, environ) or ""),
        "TLS": "yes" if listen.certificate else "",
    }
