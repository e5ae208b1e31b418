"""Watches the step thread from the event loop: what follows when a step does not end, or the device is not right."""

from __future__ import annotations

import logging
from typing import Final

from zerolayer.errors import EngineFailed, Unavailable
from zerolayer.front.dispatch import Dispatcher
from zerolayer.guard.guard import Guard
from zerolayer.model.diagnosis import give_up
from zerolayer.model.heartbeat import Heartbeat, Outcome
from zerolayer.model.quarantine import Action, Quarantine
from zerolayer.model.recorder import Recorder
from zerolayer.model.step_clock import StepClock
from zerolayer.model.watchdog import Verdict, Watchdog

_log = logging.getLogger("zerolayer.front")

_STANDS: Final = "the engine stands still; send the request again in a moment"
_QUARANTINED: Final = "the device of this server is in quarantine; send the request again in a moment"


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
        self._quarantine = Quarantine()
        self._broken = False
        self._stalled = False

    @property
    def troubled(self) -> bool:
        """Whether the engine stands still or has stopped, as far as was seen."""
        return self._stalled or self._broken

    @property
    def quarantined(self) -> bool:
        """Whether the device gets no requests until it gives its known output again."""
        return self._quarantine.closed

    def look(self, now_ns: int) -> None:
        """Act on what is seen: stop admission and end the streams, admit again, or give up."""
        if not self._broken and not self._steps.alive:
            self._broken = True
            self._break()
        self._watch_step(now_ns)
        self._watch_device(now_ns)

    def _watch_step(self, now_ns: int) -> None:
        verdict = self._watchdog.look(now_ns, self._steps.step_began_ns)
        if verdict is Verdict.STALLED:
            self._stalled = True
            _log.critical("a step does not end; the server takes no work until it does")
            self._act(self._quarantine.missed(now_ns))
            self._admit_or_refuse()
            self._dispatcher.interrupt(EngineFailed(_STANDS))
        elif verdict is Verdict.RECOVERED:
            self._stalled = False
            _log.warning("the step ended after all; the server takes work again")
            self._admit_or_refuse()
        elif verdict is Verdict.LOST:
            _log.critical("a step does not end at all; the process exits")
            self._give_up(self._recorder)

    def _watch_device(self, now_ns: int) -> None:
        """What the probes showed since the last look."""
        quarantine, outcomes = self._quarantine, self._heartbeat.outcomes
        while outcomes:
            outcome = outcomes.popleft()
            if outcome is Outcome.RIGHT:
                self._act(quarantine.right(now_ns, self._heartbeat.programs))
            elif outcome is Outcome.WRONG:
                self._act(quarantine.wrong(now_ns))
            else:
                self._act(quarantine.missed(now_ns))
        self._act(quarantine.look(now_ns))
        if quarantine.hopeless:
            _log.critical("the device does not give its known output any more; the process exits")
            self._give_up(self._recorder)

    def _act(self, action: Action) -> None:
        if action is Action.PROBE:
            self._steps.probe()
        elif action is Action.CLOSE:
            _log.critical("the device is in quarantine: its steps fail, or a known input gave another output")
            self._admit_or_refuse()
            self._dispatcher.fail_all(EngineFailed(_QUARANTINED))
        elif action is Action.OPEN:
            _log.warning("the device gives its known output again; the server takes work again")
            self._admit_or_refuse()

    def _admit_or_refuse(self) -> None:
        """New work is taken while nothing speaks against it."""
        if self._broken:
            return
        why = _STANDS if self._stalled else _QUARANTINED if self._quarantine.closed else ""
        self._guard.stall(Unavailable(why) if why else None)

    def _break(self) -> None:
        _log.critical("the engine has stopped; the server takes no more work and must be restarted")
        stopped = Unavailable("the engine has stopped; the server must be restarted")
        self._guard.close(stopped)
        self._guard.stall(stopped)  # also for who was admitted and has not begun
        self._dispatcher.fail_all(
            EngineFailed("the engine stopped before the reply was complete; send the request again")
        )
