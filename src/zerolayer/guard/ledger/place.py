"""Which folder the ledger of a contract is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zerolayer.contract import Contract

AUTO: Final = "auto"
OFF: Final = "off"


def ledger_folder(contract: Contract, environ: Mapping[str, str]) -> Path | None:
    """None where there is no ledger: switched off, or no folder was named for a port that the system chooses.

    By itself it is in ``$XDG_STATE_HOME`` (an absolute path, else ``~/.local/state``), as the XDG Base Directory
    Specification has it, with the port in its name: one writer each.
    """
    path, port = contract.ledger.path, contract.listen.port
    if path == OFF or (path == AUTO and port == 0):
        return None
    if path != AUTO:
        return Path(path).expanduser()
    given = Path(environ.get("XDG_STATE_HOME", ""))
    state = given if given.is_absolute() else Path(environ.get("HOME", "/")) / ".local" / "state"
    return state / "zerolayer" / f"ledger-{port}"
