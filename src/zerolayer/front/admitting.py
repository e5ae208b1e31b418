"""From a slot that is reserved to a request that begins: whose text is tokenised when.

While the engine runs, a text is tokenised in the turn of the loop that read it, so that the next decision knows its
length. While it rests a pulse may have begun, of which a few are admitted and many are refused, and these wait for no
text of others: the length is presumed, and the text tokenised when everybody who came along has been decided
(``turns.py``). Text over 4 KB is tokenised on the helper thread, and a grammar which is not known yet is compiled on a
thread of its own; the slot is held meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.front.aside import read_aside
from zerolayer.front.dispatch import Dispatcher
from zerolayer.front.exchange import Exchange
from zerolayer.front.held import HeldClients
from zerolayer.front.site import Site
from zerolayer.guard.deadline.admission import NoSlot
from zerolayer.guard.deadline.reservation import Arrival, Held, Reservation
from zerolayer.guard.freshness import Verdict
from zerolayer.guard.guard import Guard
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.model.engine import Generation
from zerolayer.observe.stages import Stage
from zerolayer.wire.schema import Request

# For every request: a member of an enumeration is dearer to name.
_GUARD: Final = int(Stage.GUARD)
_TOKENISE: Final = int(Stage.TOKENISE)
_WAIT: Final = int(Stage.WAIT)

_T = TypeVar("_T")


class Admitted(msgspec.Struct, frozen=True):
    """A request that has its slot and is to begin; ``generations`` is the work of each slot."""

    exchange: Exchange
    request: Request
    arrival: Arrival
    reservation: Reservation
    prompts: list[Prompt]
    generations: list[Generation]
    verdict: Verdict


class Admitting:
    """All methods run on the loop; ``start`` begins what was admitted. Whatever fails before gives the slot back."""

    def __init__(
        self,
        guard: Guard,
        dispatcher: Dispatcher,
        site: Site,
        helper: Executor,
        compiler: Executor,
        held: HeldClients,
        start: Callable[[Admitted], None],
    ) -> None:
        self._guard = guard
        self._dispatcher = dispatcher
        self._wall_s = site.wall_s
        self._turns = site.turns
        self._helper = helper
        self._compiler = compiler
        self._held = held
        self._start = start

    def decided(
        self,
        exchange: Exchange,
        request: Request,
        arrival: Arrival,
        answer: Reservation | Held | NoSlot,
        prompts: list[Prompt] | None = None,
    ) -> None:
        """Go on with what the guard has answered; ``prompts``: the text, where it was tokenised before."""
        if isinstance(answer, ZerolayerError):
            exchange.error(answer)
            return
        exchange.mark(_GUARD)
        if isinstance(answer, Held):
            self._held.add(exchange, answer, partial(self._granted, request, arrival))
        elif prompts is None:
            self._granted(request, arrival, exchange, answer)
        else:
            self._tokenise(exchange, request, arrival, answer, lambda: prompts)

    def _granted(self, request: Request, arrival: Arrival, exchange: Exchange, reservation: Reservation) -> None:
        if reservation.compiles or reservation.long:
            self._tokenise_aside(exchange, request, arrival, reservation)
            return
        answer = self._guard.presume(request, reservation) if self._dispatcher.rests else reservation
        if not isinstance(answer, Reservation):
            self.decided(exchange, request, arrival, answer)
        elif answer.presumed:
            read = partial(self._read, exchange, request, arrival, answer)
            self._turns.begin_later(exchange, read, partial(self._guard.release, answer))
        else:
            self._tokenise(exchange, request, arrival, answer, partial(self._guard.reader.prompts, request))

    def _read(self, exchange: Exchange, request: Request, arrival: Arrival, reservation: Reservation) -> None:
        """In its turn, the text of one whose length was presumed."""
        exchange.mark(_WAIT)
        prompts = self._or_release(exchange, reservation, partial(self._guard.reader.prompts, request))
        if prompts is None:
            return
        exchange.mark(_TOKENISE)
        try:
            answer = self._guard.settle(reservation, prompts)
        except ZerolayerError as error:  # nothing is held for it any more
            exchange.error(error)
            return
        if answer is not reservation:  # others were promised what would have been its time
            self.decided(exchange, request, arrival, answer, prompts)
            return
        self._or_release(
            exchange, reservation, lambda: self._start(self._admit(exchange, request, arrival, reservation, prompts))
        )

    def _tokenise_aside(self, exchange: Exchange, request: Request, arrival: Arrival, reservation: Reservation) -> None:
        # Whoever brings a grammar that takes its time delays those who bring another one, and nobody else.
        aside = self._compiler if reservation.compiles else self._helper
        tokenised = partial(self._tokenise, exchange, request, arrival, reservation)
        read_aside(aside, self._guard, exchange, request, reservation, tokenised)

    def _tokenise(
        self,
        exchange: Exchange,
        request: Request,
        arrival: Arrival,
        reservation: Reservation,
        result: Callable[[], list[Prompt]],
    ) -> None:
        """``result`` gives the prompts or raises."""

        def confirm() -> None:
            prompts = result()
            exchange.mark(_TOKENISE)
            admitted = self._admit(exchange, request, arrival, reservation, prompts)
            self._turns.begin_later(exchange, partial(self._begin, admitted), partial(self._guard.release, reservation))

        self._or_release(exchange, reservation, confirm)

    def _admit(
        self,
        exchange: Exchange,
        request: Request,
        arrival: Arrival,
        reservation: Reservation,
        prompts: list[Prompt],
    ) -> Admitted:
        verdict = self._guard.freshness.judge(arrival.stamps, int(self._wall_s() * 1000))  # a held request ages
        generations = self._guard.confirm(reservation, request, prompts)
        exchange.mark(_GUARD)
        return Admitted(exchange, request, arrival, reservation, prompts, generations, verdict)

    def _begin(self, admitted: Admitted) -> None:
        admitted.exchange.mark(_WAIT)
        self._or_release(admitted.exchange, admitted.reservation, partial(self._start, admitted))

    def _or_release(self, exchange: Exchange, reservation: Reservation, go: Callable[[], _T]) -> _T | None:
        went = False
        try:
            result = go()
            went = True
            return result
        except ZerolayerError as error:
            exchange.error(error)
            return None
        finally:
            if not went:
                self._guard.release(reservation)
