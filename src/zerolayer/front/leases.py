"""``POST /v1/leases``: what servers of one fleet ask and tell each other about shared limits.

A request is a JSON list of ``ask`` and ``return`` messages, the reply a JSON list with a ``granted`` for each ask
(``guard/budget/lease.py``). On the service it needs a key of ``zerolayer keys issue --node``; the admin listener, which
only this machine reaches, takes it from anybody as ``POST /leases``.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from zerolayer.errors import InvalidRequest, PermissionRefused
from zerolayer.front.exchange import JSON, Exchange
from zerolayer.guard.budget.lease import NAME_BYTES, Ask, Granted, Return

PATH: Final = "/v1/leases"
ADMIN_PATH: Final = "/leases"
MESSAGES: Final = 1024
_MOST: Final = 1 << 60

Message = Ask | Return
_decoder = msgspec.json.Decoder(list[Message])


class Home(Protocol):
    """What the route needs of ``guard.budget.budgets``."""

    def lend(self, ask: Ask) -> Granted:
        """Answer an ask."""

    def take_back(self, back: Return) -> None:
        """A lease is over."""


class Leases:
    """Both routes."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def service(self, exchange: Exchange) -> None:
        """For other nodes, by their keys."""
        if exchange.identity.is_node:
            self.admin(exchange)
        else:
            exchange.error(PermissionRefused("leases are for servers of the fleet; issue a key with --node"))

    def admin(self, exchange: Exchange) -> None:
        """For this machine."""
        try:
            messages = _decoder.decode(exchange.body)
            if len(messages) > MESSAGES or not all(_well_formed(message) for message in messages):
                raise ValueError
        except (ValueError, RecursionError):
            exchange.error(InvalidRequest(f"a list of at most {MESSAGES} messages 'ask' and 'return' is expected"))
            return
        exchange.reply(200, (JSON,), msgspec.json.encode(self._answers(messages)))

    def _answers(self, messages: list[Message]) -> list[Granted]:
        answers = []
        for message in messages:
            if isinstance(message, Ask):
                answers.append(self._home.lend(message))
            else:
                self._home.take_back(message)
        return answers


def _well_formed(message: Message) -> bool:
    units = message.wanted if isinstance(message, Ask) else message.left
    numbers = [units.requests, units.tokens, units.compute_us, units.running]
    if isinstance(message, Ask):
        numbers += msgspec.structs.astuple(message.quota)
    named = len(message.account) == len(message.lease) == NAME_BYTES
    return named and all(0 <= number <= _MOST for number in numbers)
