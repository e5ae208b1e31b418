"""Watches the step thread from the event loop: what follows when a step does not end, or the engine cannot go on."""

from __future__ import annotations

import logging

from zerolayer.errors import EngineFailed, Unavailable
from zerolayer.front.dispatch import Dispatcher
from zerolayer.guard.guard import Guard
from zerolayer.model.diagnosis import give_up
from zerolayer.model.heartbeat import Heartbeat
from zerolayer.model.recorder import Recorder
from zerolayer.model.step_clock import StepClock
from zerolayer.model.watchdog import Verdict, Watchdog

_log = logging.getLogger("zerolayer.front")


class Supervisor:
    """``look`` is called on the loop several times a second."""

    _give_up = staticmethod(give_up)

    def __init__(
        self,
        guard: Guard,
        dispatcher: Dispatcher,
        steps: StepClock,
        heartbeat: Heartbeat,
        watchdog: Watchdog,
        recorder: Recorder,
    ) -> None:
        self._guard = guard
        self._dispatcher = dispatcher
        self._steps = steps
        self._heartbeat = heartbeat
        self._watchdog = watchdog
        self._recorder = recorder
        self._broken = False
        self._stalled = False

    @property
    def troubled(self) -> bool:
        """Whether the engine stands still or has stopped, as far as was seen."""
        return self._stalled or self._broken

    def look(self, now_ns: int) -> None:
        """Act on what is seen: stop admission and end the streams, admit again, or give up."""
        if not self._broken and (not self._steps.alive or self._heartbeat.broken):
            self._broken = True
            self._break()
        verdict = self._watchdog.look(now_ns, self._steps.step_began_ns)
        if verdict is Verdict.STALLED:
            self._stalled = True
            _log.critical("a step does not end; the server takes no work until it does")
            self._guard.stall(Unavailable("the engine stands still; send the request again in a moment"))
            self._dispatcher.interrupt(EngineFailed("the engine stands still; send the request again in a moment"))
        elif verdict is Verdict.RECOVERED:
            self._stalled = False
            _log.warning("the step ended after all; the server takes work again")
            self._guard.stall(None)
        elif verdict is Verdict.LOST:
            _log.critical("a step does not end at all; the process exits")
            self._give_up(self._recorder)

    def _break(self) -> None:
        _log.critical("the engine cannot be trusted any more; the server takes no more work and must be restarted")
        self._guard.close(Unavailable("the engine has stopped; the server must be restarted"))
        self._dispatcher.fail_all(
            EngineFailed("the engine stopped before the reply was complete; send the request again")
        )
