"""What a person gets to see of a server that misbehaves: on SIGUSR1, and when the process gives up."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import NoReturn

from zerolayer.model.recorder import Recorder, table, write

EXIT_LOST = 70  # EX_SOFTWARE of sysexits.h: a supervisor restarts it, and can tell it from every other end
_STDERR = 2
_WRITE_S = 2.0  # for the steps of a process that gives up: a dead disk must not keep it alive

_log = logging.getLogger("zerolayer.model")


def answer_signal(loop: asyncio.AbstractEventLoop, recorder: Callable[[], Recorder]) -> None:
    """From now on SIGUSR1 writes the stacks of all threads to stderr, and the last steps where ``write`` says.

    The stacks come from a C handler, so they come when the interpreter stands still, too; a crash of native code
    leaves them likewise. On the main thread.
    """
    faulthandler.enable(file=_STDERR, all_threads=True)
    loop.add_signal_handler(signal.SIGUSR1, lambda: _write_steps(recorder()))
    faulthandler.register(signal.SIGUSR1, file=_STDERR, all_threads=True, chain=True)


def give_up(recorder: Recorder) -> NoReturn:
    """Write stacks and steps, and leave without waiting for anything."""
    faulthandler.dump_traceback(file=_STDERR, all_threads=True)
    writing = threading.Thread(target=_write_steps, args=(recorder,), daemon=True)
    writing.start()
    writing.join(_WRITE_S)
    os._exit(EXIT_LOST)


def _write_steps(recorder: Recorder) -> None:
    records = recorder.records()
    place = write(table(records, recorder.now_ns()), os.environ)
    _log.info("the last %d steps are in %s", len(records), place)
