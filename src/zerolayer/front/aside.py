"""Prompts that are read off the loop, while their request's place is held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial

from zerolayer.front.exchange import Exchange
from zerolayer.guard.deadline.reservation import Reservation
from zerolayer.guard.guard import Guard
from zerolayer.guard.prompts.prompt import Prompt
from zerolayer.wire.schema import Request

Result = Callable[[], list[Prompt]]
"""Gives the prompts, or raises what reading them raised."""


def read_aside(
    executor: Executor,
    guard: Guard,
    exchange: Exchange,
    request: Request,
    reservation: Reservation,
    then: Callable[[Result], None],
) -> None:
    """Read the request's prompts on ``executor``, then call ``then`` on the loop that runs now.

    A client that leaves meanwhile gives its reservation back, and ``then`` is not called. What ``then`` raises is told
    as a defect; giving the reservation back is up to it.
    """
    loop = asyncio.get_running_loop()
    future = executor.submit(guard.reader.prompts, request)
    exchange.on_gone = partial(_give_up, future, guard, reservation)
    arrived = partial(_arrived, exchange, then)
    future.add_done_callback(lambda done: loop.call_soon_threadsafe(arrived, done))


def _give_up(future: Future[list[Prompt]], guard: Guard, reservation: Reservation) -> None:
    future.cancel()
    guard.release(reservation)


def _arrived(exchange: Exchange, then: Callable[[Result], None], future: Future[list[Prompt]]) -> None:
    if exchange.on_gone is None:
        return  # it has left, and its place with it
    exchange.on_gone = None
    try:
        then(future.result)
    except Exception as error:  # noqa: BLE001 - as on the connection, which is not below us here
        exchange.defect(error)
