"""How a defect of the server is told: kind and place for the log, nothing that a client sent for anybody."""

from __future__ import annotations

import logging
from pathlib import PurePath
from traceback import walk_tb
from typing import Any

_log = logging.getLogger("zerolayer.front")


def log_defect(what: str, error: BaseException) -> None:
    """One line: what was cut short, the exception's type and origin; never its text, which may quote a prompt."""
    place = "an unknown place"
    for frame, line in walk_tb(error.__traceback__):
        place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
    _log.error("%s: %s at %s; this is a defect of the server", what, type(error).__name__, place)


def on_loop_exception(_loop: object, context: dict[str, Any]) -> None:
    """An exception handler for the loop; the usual one prints callbacks with their arguments."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log_defect("a callback failed", error)
    else:
        _log.error("the event loop reports a defect of the server")
