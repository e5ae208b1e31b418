"""What has come is decided before what was admitted is begun.

To begin an admitted request costs the loop as much as several refusals, and once the engine has work it takes the cores
that the loop needs to read whoever came along. So an admitted request begins when the loop has looked at its sockets
and found neither a new connection nor a new request, nor has anybody just connected who is still to say what for; one
begins per turn. Its slot is held meanwhile. An engine that runs waits for nobody: with the end of a step all begin, and
what the calendar counts in steps stays true. Nor is anybody held up for longer than ``PATIENCE_NS`` by those who never
stop coming.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

PATIENCE_NS: Final = 20_000_000
SILENCE_NS: Final = 5_000_000
"""Within which another one of those who came along has usually said something, while all of them need the cores."""
_PAUSE_S: Final = 0.001
"""Between two looks for such a client, unless it speaks before; uvloop counts in milliseconds, and half of one is none.

A loop that does not pause keeps the core on which the kernel has woken it, and that is often the very one that such a
client needs to go on.
"""
_UNKNOWN: Final = -1  # how many have come is not known before the loop has looked

CallSoon = Callable[[Callable[[], None]], object]
CallLater = Callable[[float, Callable[[], None]], object]


class Leaving(Protocol):
    """Somebody whose client may go."""

    on_gone: Callable[[], None] | None

    def defect(self, error: Exception) -> None:
        """The server's own code failed on this request."""


class _Admitted(msgspec.Struct, eq=False):
    exchange: Leaving
    begin: Callable[[], None] | None  # None: its client has gone
    since_ns: int


class Turns:
    """Of one service. All methods run on the loop; ``call_soon`` is the loop's, and runs what it gets after a look.

    So is ``call_later``, in seconds.

    | who waits | the last look | a turn of the loop | the end of a step |
    |---|---|---|---|
    | nobody | | is the last one | |
    | somebody | was not yet, or somebody came | looks again; who has waited for too long begins | all begin |
    | somebody | nobody came, who just connected is silent | the same, in a moment | all begin |
    | somebody | nobody came | the first one begins | all begin |
    """

    def __init__(
        self, clock_ns: Callable[[], int], call_soon: CallSoon | None = None, call_later: CallLater | None = None
    ) -> None:
        self.came = 0  # requests and connections so far; whoever reads one adds it
        self._clock_ns = clock_ns
        self._call_soon = call_soon
        self._call_later = call_later
        self._silent: dict[object, int] = {}  # who has connected and said nothing yet, and when; the newest last
        self._waiting: deque[_Admitted] = deque()
        self._known = _UNKNOWN  # how many had come at the last look
        self._moved_ns = 0  # the last look at which that was another number
        self._turning = False  # a turn is to come

    def __len__(self) -> int:
        return len(self._waiting)

    def connected(self, who: object) -> int:
        """Somebody came, at the time that this returns, and has asked for nothing yet."""
        self.came += 1
        self._silent[who] = now = self._clock_ns()
        return now

    def spoke(self, who: object) -> None:
        """It has, or has gone."""
        self._silent.pop(who, None)

    def begin_later(self, exchange: Leaving, begin: Callable[[], None], leave: Callable[[], None]) -> None:
        """Call ``begin`` in its turn, or ``leave`` where the client goes before that."""
        admitted = _Admitted(exchange, begin, self._clock_ns())
        exchange.on_gone = partial(self._gone, admitted, leave)
        self._waiting.append(admitted)
        if not self._turning:
            self._known = _UNKNOWN
            self._again(pause=False)

    def step_ended(self) -> None:
        """The engine runs."""
        while self._waiting:
            self._begin(self._waiting.popleft())

    def _again(self, *, pause: bool) -> None:
        self._turning = True
        if pause:
            call_later = self._call_later or asyncio.get_running_loop().call_later
            call_later(_PAUSE_S, self._turn)
        else:
            call_soon = self._call_soon or asyncio.get_running_loop().call_soon
            call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        waiting, came, now = self._waiting, self.came, self._clock_ns()
        if came != self._known:
            self._moved_ns = now
        expects = self._expects(now)
        if waiting and ((came == self._known and not expects) or now - waiting[0].since_ns >= PATIENCE_NS):
            self._begin(waiting.popleft())
        self._known = came
        if waiting:
            self._again(pause=expects)

    def _expects(self, now_ns: int) -> bool:
        """Whether somebody is about to ask."""
        newest = next(reversed(self._silent.values()), None)
        return newest is not None and now_ns - newest < PATIENCE_NS and now_ns - self._moved_ns < SILENCE_NS

    def _begin(self, admitted: _Admitted) -> None:
        if admitted.begin is None:
            return
        admitted.exchange.on_gone = None
        try:
            admitted.begin()
        except Exception as error:  # noqa: BLE001 - as on the connection, which is not below us here
            admitted.exchange.defect(error)

    def _gone(self, admitted: _Admitted, leave: Callable[[], None]) -> None:
        admitted.begin = None
        leave()
