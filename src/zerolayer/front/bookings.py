"""``DELETE /v1/bookings/{ticket}``: a client that goes elsewhere gives its promised start back, for others to have."""

from __future__ import annotations

from typing import Final

from zerolayer.front.exchange import Exchange
from zerolayer.guard.deadline.admission import Admission

BOOKINGS: Final = "/v1/bookings/"


class Bookings:
    """All methods run on the loop."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def give_back(self, exchange: Exchange) -> None:
        """Always 204: whoever holds no such booking learns nothing."""
        self._admission.give_back(exchange.head.path[len(BOOKINGS) :], exchange.credential)
        exchange.reply(204, (), b"")
