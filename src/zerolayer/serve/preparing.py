"""What compiles grammars, made for a model that came beside another one when nobody is there to wait for it.

Making it stops the whole process for 0.1 s. A server that starts has it before it is ready (``model/load.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from zerolayer.serve.room import ModelRoom

_REST_S: Final = 1.0  # without a step


class Preparing:
    """``room`` is the one that is served, ``busy`` whether anybody asks. All methods run on the loop."""

    def __init__(self, room: Callable[[], ModelRoom], busy: Callable[[], bool], aside: Executor) -> None:
        self._room = room
        self._busy = busy
        self._aside = aside
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._steps = -1

    def begin(self) -> None:
        """Look now and then, until it is made for the model that is served."""
        self.stop()
        if not self._room().loaded.grammars.prepared:
            self._timer = self._loop.call_later(_REST_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        room = self._room()
        before, self._steps = self._steps, room.steps.steps
        if before != self._steps or room.admission.calendar.taken or room.admission.calendar.bookings or self._busy():
            self.begin()
        else:
            self._aside.submit(room.loaded.grammars.prepare)
