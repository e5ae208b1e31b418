"""The live page of the admin listener: its files, and the one stream of events that feeds it.

The page has no foreign part, and its policy (Content Security Policy level 3) lets a browser load nothing else. Who
watches gets ``service`` and the minute's columns first, then a ``moment`` at each sweep, and each second a ``minute``
and the ``budgets`` that are used most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from zerolayer.front.exchange import Action, Exchange
from zerolayer.front.site import Header
from zerolayer.observe.live import LiveRecord, Moment, Service, Totals

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDED: Final[tuple[Header, ...]] = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)
_MEDIA: Final = {
    "index.html": b"text/html; charset=utf-8",
    "live.css": b"text/css; charset=utf-8",
    "live.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}


class LivePage:
    """``files`` are the page's, by name; ``totals``, ``moment`` and ``budgets`` look at the server.

    All methods run on the loop.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        service: Service,
        totals: Callable[[], Totals],
        moment: Callable[[int], Moment],
        budgets: Callable[[], Sequence[object]],
    ) -> None:
        self._files = files
        self._service = event("service", service)
        self._totals = totals
        self._moment = moment
        self._budgets = budgets
        self._record = LiveRecord()
        self._viewers: set[Exchange] = set()

    def table(self) -> dict[str, Mapping[str, Action]]:
        """Path -> method -> action."""
        files: dict[str, Mapping[str, Action]] = {
            "/" + name.removeprefix("index.html"): {"GET": partial(_reply_file, self._files[name], media)}
            for name, media in _MEDIA.items()
        }
        return {**files, "/live": {"GET": self._watch}}

    @property
    def viewers(self) -> int:
        """How many watch."""
        return len(self._viewers)

    def serve(self, service: Service) -> None:
        """From now on the service is another one; whoever watches is told, with all that was seen so far."""
        self._service = event("service", service)
        news = self._service + self._columns() + self._minute()
        for viewer in list(self._viewers):
            viewer.stream(news)

    def sweep(self, now_ns: int) -> None:
        """Several times a second: sample, where a second has gone by, and tell whoever watches."""
        due = self._record.due(now_ns)
        if due:
            self._record.sample(now_ns, self._totals())
        if not self._viewers:
            return
        events = event("moment", self._moment(now_ns))
        if due:
            events += self._columns(1) + self._minute() + event("budgets", self._budgets())
        for viewer in list(self._viewers):
            viewer.stream(events)

    def _watch(self, exchange: Exchange) -> None:
        self._viewers.add(exchange)
        exchange.on_gone = partial(self._viewers.discard, exchange)
        exchange.stream(self._service + self._columns() + self._minute() + event("budgets", self._budgets()))
        exchange.park()

    def _columns(self, newest: int | None = None) -> bytes:
        columns = self._record.columns() if newest is None else self._record.columns(newest)
        return event("columns", columns)

    def _minute(self) -> bytes:
        minute = self._record.minute()
        return b"" if minute is None else event("minute", minute)


def event(name: str, value: object) -> bytes:
    """One server-sent event with a JSON body (WHATWG HTML, section 9.2)."""
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), msgspec.json.encode(value))


def _reply_file(body: bytes, media: bytes, exchange: Exchange) -> None:
    """The file, or 304 for who has it already."""
    etag = b'"%b"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode("ascii")
    headers = (*_GUARDED, (b"etag", etag))
    if exchange.head.get(b"if-none-match") == etag:
        exchange.reply(304, headers, b"")
    else:
        exchange.reply(200, ((b"content-type", media), *headers), body)
