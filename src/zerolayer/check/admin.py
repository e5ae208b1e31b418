"""Asks a server at its admin address, for the commands that show what it measured."""

from __future__ import annotations

from typing import Final

from zerolayer.check.errors import TargetError
from zerolayer.client.address import Address, Patience
from zerolayer.client.blocking import BlockingExchange, get
from zerolayer.client.errors import Refused

_NOT_THERE: Final = frozenset({401, 404})  # the admin has what it is asked for, and wants no key


def ask_admin(url: str, path: str, patience: Patience) -> BlockingExchange:
    """The reply of 200 whose body is still to be read.

    Raises ``TargetError`` for any other address, as that of the service itself; ``ClientError``.
    """
    address = Address.parse(url)
    try:
        return get(address, path, patience)
    except Refused as refusal:
        if refusal.status_code not in _NOT_THERE:
            raise
        raise TargetError(
            f"{address} is no admin address of zerolayer: it has no {path}. Give the one that the server's greeting "
            "calls `watch`."
        ) from None
