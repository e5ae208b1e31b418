"""``zerolayer serve``: the model is read while the server's own modules are imported, which takes about as long."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TextIO

from zerolayer.contract import Contract, Effective
from zerolayer.observe.logs import start_logging
from zerolayer.serve.devices import claim

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel

Progress = Callable[[str], None]

_LOG_EVERY_S: Final = 5.0  # between two lines of a bar that nobody watches grow
_SWITCH_S = 0.0002  # a thread in pure Python may keep another waiting for this long, not for the default 5 ms


def main(
    effective: Effective,
    load: Callable[[Contract, Progress], LoadedModel] | None = None,
    takeover: str | None = None,
) -> int:
    """``zerolayer serve``: runs until SIGINT or SIGTERM; returns the exit code. Raises ``StartupError``.

    ``load`` replaces the reading of a model file, for tests. ``takeover``: the admin socket of the server that is
    replaced, or "" for the one of this contract.
    """
    _end_at_once()
    contract = effective.contract
    log = contract.log
    start_logging(log.format, log.level, access=log.access)
    for device in contract.engine.devices:  # one: of several, each has a process of its own
        claim(device)
    new = None
    if takeover is not None:
        from zerolayer.serve.takeover.asking import ask

        contract, new = ask(contract, takeover)  # before the model is read: most refusals need none
    if load is None:
        from zerolayer.model.load import load_model

        load = load_model
    sys.setswitchinterval(_SWITCH_S)
    aside = ThreadPoolExecutor(1, "zerolayer-load")
    loading = aside.submit(load, contract, ProgressLines(sys.stderr, time.monotonic).show)
    aside.shutdown(wait=False)  # its thread ends with the loading
    # Imported now, not above: packing weights leaves the GIL to it.
    from zerolayer.serve.running import run

    return run(contract, loading, new)


def _end_at_once() -> None:
    """Until requests are served nothing is to be brought to an end in order: the first signal ends the process.

    Else the interpreter would wait for the thread that packs weights, and the kernel would keep the signal from the
    first process of a container.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _frame: os._exit(128 + number))


class ProgressLines:
    """What is told while a model is read: a bar that grows in place on a terminal, and a few lines in a log."""

    def __init__(self, out: TextIO, clock_s: Callable[[], float]) -> None:
        self._out = out
        self._in_place = out.isatty()
        self._clock_s = clock_s
        self._next_s = -math.inf  # when a log gets the next line of a bar

    def show(self, line: str) -> None:
        """One line; those of a bar end with per cent."""
        grows = line.endswith(" %") and not line.endswith("100 %")
        if self._in_place:
            print(f"\r\x1b[K{line}", end="" if grows else "\n", file=self._out, flush=True)
            return
        if grows:
            now_s = self._clock_s()
            if now_s < self._next_s:
                return
            self._next_s = now_s + _LOG_EVERY_S
        print(line, file=self._out, flush=True)
