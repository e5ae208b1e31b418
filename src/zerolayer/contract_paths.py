"""Paths that a contract names, looked at so that a folder which this user may not enter is no defect."""

from __future__ import annotations

from pathlib import Path

from zerolayer.errors import system_reason

# Keys whose value may begin with a home directory, `~/` or `~user/`.
WITH_HOME = (
    "model.path",
    "listen.admin_unix",
    "tenants.key_set",
    "tenants.revocations",
    "tenants.state",
    "tenants.node_key",
    "ledger.path",
)


def has_home(path: str) -> bool:
    """Whether the home directory that ``path`` begins with is known: there may be no such user, or none at all."""
    try:
        Path(path).expanduser()
    except RuntimeError:
        return False
    return True


def why_missing(path: Path) -> str:
    """Why nothing can be found at ``path``, in words; empty: it is there."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError as error:
        return f"cannot be looked at ({system_reason(error)})"
    return ""
