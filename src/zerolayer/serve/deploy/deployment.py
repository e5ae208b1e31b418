"""Another model takes the place of the one that is served, in the same process, and nobody is sent away for it.

The new model is loaded and warmed beside the old one, on a thread, in turns with its steps. Then, between two requests,
it answers: whoever is in a slot ends on the old model, whose memory goes back when the last of them has left. What is
promised says from the first turn on what turns cost, and no turn is taken that a promise cannot bear.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from zerolayer.contract import Contract
from zerolayer.errors import DeployFailed, Unavailable, ZerolayerError
from zerolayer.front.defect import log_defect
from zerolayer.front.deploys import News
from zerolayer.front.held import ask_again
from zerolayer.model.cost import Prices
from zerolayer.model.load import Beside
from zerolayer.model.shared_cores import SharedCores
from zerolayer.serve.deploy.handing_over import contract_of, hand_over, turns_of_leaving
from zerolayer.serve.room import House, ModelRoom, build_room
from zerolayer.serve.rooms import Rooms

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel

_log = logging.getLogger("zerolayer.serve")

_LOOK_S: Final = 0.02  # between two looks whether something is the case by now
_PATIENCE_S: Final = 300.0  # for streams whose limits leave no room for a second model
_CLOSED: Final = "the server takes no requests, so it takes no new model either; see /readyz"
_DEFECT: Final = "the deployment failed by a defect of the server; its log tells more"
_STRAGGLERS_S: Final = 1.5  # requests that wait for the time of their input, a second at most, are the old room's
_TURN_NS: Final = 30_000_000  # a part of the memory that is touched, at the pace of a slow machine
_NS_PER_BYTE: Final = 2  # of memory that is touched and packed
_NS_PER_WEIGHT: Final = 4  # of a matrix that is packed in one turn
_ROUNDS: Final = 2  # of heartbeats: the second one must give what the first one gave
_PHASES: Final = {"file": "load", "memory": "load", "weights": "pack", "fine weights": "pack", "kept prompts": "warm"}

_CLOSE_S: Final = 30.0  # for what a thread does between two looks whether it is called off

Result = TypeVar("Result")
Load = Callable[..., "LoadedModel"]  # as ``model.load.load_model``
Tell = Callable[[News], None]


def load_later(contract: Contract, progress: Callable[[str], None], **how: object) -> LoadedModel:
    """``model.load.load_model``, imported when it is needed."""
    from zerolayer.model.load import load_model

    return load_model(contract, progress, **how)  # type: ignore[arg-type]


class Others(Protocol):
    """Other processes, to which this one hands over or from which it took over."""

    @property
    def in_the_way(self) -> str:
        """Why no other model can be served now, for people; "" if it can."""


class Deployable(Protocol):
    """A server, as far as it takes part."""

    house: House
    rooms: Rooms

    @property
    def heirs(self) -> Others:
        """Who would take it over."""

    def served(self, new: ModelRoom) -> None:
        """``new`` answers from now on."""

    def left(self) -> None:
        """The old room is empty and closed."""


class CalledOff(ZerolayerError):
    """Whoever wanted the new model has left; never sent to anybody."""


class Deployment:
    """One change, from its beginning to its end. On the loop, but for what it does on a thread of its own."""

    def __init__(self, server: Deployable, contract: Contract, load: Load, tell: Tell) -> None:
        self._server = server
        self._contract = contract
        self._load = load
        self._tell = tell
        self._loop = server.house.loop
        self._clock_ns = server.house.clock_ns
        self._began_ns = self._clock_ns()
        self._cores = SharedCores()
        self._called_off = threading.Event()
        self._new: ModelRoom | None = None
        self._switched = False
        self.over = False

    def call_off(self) -> None:
        """Before the new model is served, the old one stays; after that nothing happens."""
        self._called_off.set()
        self._tell = _nobody

    async def run(self) -> None:
        """All of it; never raises."""
        try:
            await self._change()
        except ZerolayerError as error:
            _forget_frames(error)
            await self._give_up(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, requests are served on
            log_defect("a deployment failed", error)
            _forget_frames(error)
            await self._give_up(DeployFailed(_DEFECT))
        finally:
            self._new = None
            self.over = True

    async def _change(self) -> None:
        loaded = await self._aside(self._loaded)
        self._new = new = build_room(self._server.house, self._contract, loaded, self._server.rooms.next_meter())
        self._say("warm", "measuring its steps and proving its programs")
        await self._aside(partial(self._warm, new))
        await self._switch(new)
        await self._drain(new)

    # Before the change.

    def _loaded(self) -> LoadedModel:
        """On the thread: read, check and pack; raises ``StartupError``."""
        self._say("load", f"loading {self._contract.model.name}")
        beside = Beside(self._cores, self._begin)
        return self._load(self._contract, self._line, show=self._show, beside=beside)

    def _begin(self, memory: int, largest: int) -> None:
        """On the thread: wait until whoever runs can bear the turns of loading, and make them part of all prices."""
        turn_ns = max(_TURN_NS, largest * _NS_PER_WEIGHT)
        prices = Prices(reserve_ns=memory * _NS_PER_BYTE, stall_ns=turn_ns)
        asyncio.run_coroutine_threadsafe(self._share(lambda: prices, "load"), self._loop).result()

    def _warm(self, new: ModelRoom) -> None:
        """On the thread."""
        new.warm(self._clock_ns, self._cores)
        new.steps.prove(_ROUNDS)

    async def _share(self, beside: Callable[[], Prices], phase: str) -> None:
        """The old room takes turns with something of these prices, as soon as all its promises can bear that."""
        old = self._server.rooms.current
        deadline = self._loop.time() + _PATIENCE_S
        told = False
        while not old.bears(beside):
            old.share(self._cores, beside)  # whoever comes from now on will bear it
            if not told:
                told = True
                self._say(phase, "waiting for streams whose limits leave no room for a second model beside them")
            if self._called_off.is_set():
                raise CalledOff("called off")
            if self._loop.time() >= deadline:
                raise DeployFailed(
                    f"the streams that run left no room for a second model within {_PATIENCE_S:.0f} s; deploy when "
                    "fewer of them have limits as tight"
                )
            await asyncio.sleep(_LOOK_S)
        old.share(self._cores, beside)

    # The change.

    async def _switch(self, new: ModelRoom) -> None:
        rooms = self._server.rooms
        old = rooms.current
        await self._share(new.cost.as_turns, "switch")
        if self._called_off.is_set():
            raise CalledOff("called off")
        if old.guard.closed is not None:
            raise DeployFailed(_CLOSED)
        # No turn of the loop from here to the end: whoever asks finds the one room or the other.
        new.share(self._cores, turns_of_leaving(old))
        here = old.held.let_go()
        moved = hand_over(old, new)
        new.start()
        self._switched = True
        self._server.served(new)
        for exchange in here:
            ask_again(exchange)
        _log.info("%s is served now; requests that end on %s: %d", new.name, old.name, old.dispatcher.running)
        self._say("switch", f"{new.name} answers now; {moved[0]} of {moved[1]} booked starts were fitted into it")

    async def _drain(self, new: ModelRoom) -> None:
        """The old room's streams end; then its memory goes back."""
        rooms = self._server.rooms
        old = rooms.leaving
        if old is None:
            return
        waits = old.contract.freshness.on_stale == "wait"
        until, told = self._loop.time() + (_STRAGGLERS_S if waits else 0.0), -1
        most = max(1, old.dispatcher.running)
        while not old.empty or self._loop.time() < until:
            if (running := old.dispatcher.running) != told:
                told = running
                self._say("drain", f"streams that still run on {old.name}: {running}", max(0, most - running), most)
            await asyncio.sleep(_LOOK_S)
        old.guard.close(Unavailable("this model is not served any more; send the request again"))
        name, memory = old.name, old.info.memory_bytes
        self._server.left()  # before its steps end, which would be an alarm
        await self._aside(old.close)
        old.silence()
        new.alone()
        del old
        await self._forget()
        seconds = self._seconds()
        _log.info("%s has left; its %d MB are free again", name, memory >> 20)
        self._tell(
            News("done", f"{new.name} is served; {memory >> 20} MB of {name} are free again", 0, 0, new.name, seconds)
        )

    async def _forget(self) -> None:
        """What start-up froze holds the old model's words: look at it once more, and give memory back to the system.

        Where nothing was frozen, as in a program that has a server in it, nothing is: its exit frees all in order.
        """
        frozen = gc.get_freeze_count() > 0
        gc.unfreeze()
        gc.collect()
        if frozen:
            gc.freeze()
        await self._aside(_trim)

    async def _give_up(self, error: ZerolayerError) -> None:
        """The room that is served goes on as if nothing had been."""
        current = self._server.rooms.current
        if not self._switched:
            current.alone()
            new, self._new = self._new, None
            if new is not None:
                await self._aside(new.loaded.engine.shutdown)
                new.silence()
                del new
            await self._forget()
        if not isinstance(error, CalledOff):
            _log.error("the model was not deployed: %s", error.message)
        self._tell(News("failed", error.message, 0, 0, current.name, self._seconds()))

    # What is told.

    def _line(self, text: str) -> None:
        self._say("load", text)

    def _show(self, what: str, done: int, of: int) -> None:
        """On the thread, between two parts of the work."""
        if self._called_off.is_set():
            raise CalledOff("called off")
        self._say(_PHASES.get(what, "load"), what, done, of)

    def _say(self, phase: str, text: str, done: int = 0, of: int = 0) -> None:
        """From any thread."""
        news = News(phase, text, done, of, self._server.rooms.current.name, self._seconds())
        self._loop.call_soon_threadsafe(lambda: self._tell(news))

    def _seconds(self) -> float:
        return round((self._clock_ns() - self._began_ns) / 1e9, 3)

    async def _aside(self, work: Callable[[], Result]) -> Result:
        """On a thread of its own, for which the end of the process does not wait."""
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                done.set_exception(error)

        threading.Thread(target=run, name="zerolayer-deploy", daemon=True).start()
        return await asyncio.wrap_future(done)


class Deployments:
    """At most one at a time. All methods run on the loop."""

    def __init__(self, server: Deployable, load: Load) -> None:
        self._server = server
        self._load = load
        self._now: Deployment | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is one."""
        return self._now is not None and not self._now.over

    def begin(self, path: str, tell: Tell) -> Deployment:
        """Begin to change to the model that ``path`` names. Raises ``DeployFailed``."""
        if self.busy:
            raise DeployFailed("another model is being deployed; wait for its end, then deploy again")
        if why := self._server.heirs.in_the_way:
            raise DeployFailed(why)
        room = self._server.rooms.current
        if room.guard.closed is not None:
            raise DeployFailed(_CLOSED)
        self._now = Deployment(self._server, contract_of(room, path), self._load, tell)
        self._task = asyncio.get_running_loop().create_task(self._now.run())
        return self._now

    def call_off(self) -> None:
        """The server will end: a change that has not come about does not."""
        if self._now is not None:
            self._now.call_off()

    async def close(self) -> None:
        """The server ends, and no thread of a change may outlive it."""
        self.call_off()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_CLOSE_S)


def _forget_frames(error: BaseException | None) -> None:
    """What failed has the new model in its frames; nobody looks at them any more."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def _trim() -> None:
    """Give what was freed back to the system, where the C library can (malloc_trim(3) of glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _nobody(_news: News) -> None:
    pass
