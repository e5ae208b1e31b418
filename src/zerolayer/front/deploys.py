"""``POST /deploy`` of the admin's Unix socket: another model takes the place of the one that is served.

The reply is a stream of JSON objects, one a line, as things happen. A caller that leaves before the change calls it
off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from zerolayer.errors import InvalidRequest, ZerolayerError
from zerolayer.front.exchange import Exchange
from zerolayer.front.site import Header

PATH: Final = "/deploy"
VERSION: Final = 1
_LINES: Final[tuple[Header, ...]] = ((b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store"))


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens now. ``phase`` is load, pack, warm, switch, drain, done or failed."""

    phase: str
    text: str = ""  # for people
    done: int = 0  # of the phase, in units of its own
    of: int = 0
    model: str = ""  # the name that is served
    seconds: float = 0.0  # since the beginning
    version: int = VERSION

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.phase in ("done", "failed")


class Order(msgspec.Struct, frozen=True):
    """What is to be served: as ``model.path`` of the contract."""

    model: Annotated[str, Meta(min_length=1, max_length=4096)]


Begin = Callable[[str, Callable[[News], None]], "Ongoing"]
"""Begins to change to a model and tells the news, on the loop. Raises ``ZerolayerError`` where that cannot be now."""

_order = msgspec.json.Decoder(Order)


class Ongoing(Protocol):
    """A change that is under way."""

    def call_off(self) -> None:
        """Nobody wants it any more; nothing happens once the new model is served."""


class Deploys:
    """All methods run on the loop."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    def deploy(self, exchange: Exchange) -> None:
        """The action."""
        exchange.media = _LINES
        try:
            order = _order.decode(exchange.body)
            ongoing = self._begin(order.model, partial(_tell, exchange))
        except (ValueError, RecursionError):
            exchange.error(InvalidRequest('the body must be {"model": PATH OR NAME}', param="model"))
        except ZerolayerError as error:
            exchange.error(error)
        else:
            exchange.on_gone = ongoing.call_off


def _tell(exchange: Exchange, news: News) -> None:
    line = msgspec.json.encode(news) + b"\n"
    if news.last:
        exchange.end_stream(line)
    else:
        exchange.stream(line)
