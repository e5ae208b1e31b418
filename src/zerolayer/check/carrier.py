"""What carries exchanges over one connection, sans-IO: HTTP/1.1 one at a time, HTTP/2 (RFC 9113) many at once."""

from __future__ import annotations

from typing import Final, Protocol

import hpack

from zerolayer.check.exchange import HEAD_FIELDS, Exchange, ReplyParser, fill_head
from zerolayer.client.errors import BadReply
from zerolayer.client.http2 import Data, Done, Event, Head, Http2Client, head_block

STREAMS: Final = 1000  # at once, on a connection whose server names no limit
_LENGTH_BYTES: Final = 4


class Carrier(Protocol):
    """One connection's protocol. Bytes and times in; bytes to send and ended exchanges out."""

    @property
    def greeted(self) -> bool:
        """Whether the peer has said what this carrier must know before the first request."""

    @property
    def room(self) -> int:
        """How many exchanges may begin now."""

    def begin(self, exchange: Exchange) -> bytes:
        """The bytes that ask for ``exchange``."""

    def feed(self, data: bytes, now_ns: int) -> list[Exchange]:
        """Take one read; the exchanges that it ended."""

    def answer(self) -> bytes:
        """What the carrier itself has to send after a read, or at the start of a connection."""

    def end_of_file(self, now_ns: int) -> list[Exchange]:
        """The connection ended; what ended with it."""

    def leave(self, exchange: Exchange) -> bytes | None:
        """Break an exchange off: the bytes that say so, or None where only closing the connection does."""


class Http1Carrier:
    """One exchange at a time; a request's payload is its bytes."""

    greeted = True

    def __init__(self) -> None:
        self._parser: ReplyParser | None = None
        self._open = True

    @property
    def room(self) -> int:
        return int(self._open and self._parser is None)

    def begin(self, exchange: Exchange) -> bytes:
        self._parser = ReplyParser(exchange)
        return exchange.planned.payload

    def feed(self, data: bytes, now_ns: int) -> list[Exchange]:
        parser = self._parser
        if parser is None or not parser.feed(data, now_ns):
            return []
        self._parser, self._open = None, parser.reusable and not parser.exchange.error
        return [parser.exchange]

    def answer(self) -> bytes:
        return b""

    def end_of_file(self, now_ns: int) -> list[Exchange]:
        parser, self._parser, self._open = self._parser, None, False
        if parser is None:
            return []
        if not parser.exchange.error:
            parser.end_of_file(now_ns)
        return [parser.exchange]

    def leave(self, exchange: Exchange) -> bytes | None:  # noqa: ARG002 - there is only one
        return None


class Http2Carrier:
    """Many exchanges at once; a request's payload is ``http2_payload``. Breaks with the connection, never alone."""

    def __init__(self) -> None:
        self._http2 = Http2Client(hpack.Decoder())
        self._http2.most = STREAMS
        self._exchanges: dict[int, Exchange] = {}

    @property
    def greeted(self) -> bool:
        return self._http2.greeted

    @property
    def room(self) -> int:
        http2 = self._http2
        return max(0, min(STREAMS, http2.most) - http2.streams) if http2.open else 0

    def begin(self, exchange: Exchange) -> bytes:
        payload = exchange.planned.payload
        end = _LENGTH_BYTES + int.from_bytes(payload[:_LENGTH_BYTES])
        self._exchanges[self._http2.ask(payload[_LENGTH_BYTES:end], payload[end:])] = exchange
        return self._http2.take()

    def feed(self, data: bytes, now_ns: int) -> list[Exchange]:
        try:
            return self._take(self._http2.receive(data), now_ns)
        except BadReply:
            self._http2.take()  # there is nobody whom it could be told
            return self._take(self._http2.lost(), now_ns, "not HTTP/2")

    def answer(self) -> bytes:
        return self._http2.take()

    def end_of_file(self, now_ns: int) -> list[Exchange]:
        return self._take(self._http2.lost(), now_ns)  # no end is whole

    def leave(self, exchange: Exchange) -> bytes | None:
        for stream_id, each in self._exchanges.items():
            if each is exchange:
                del self._exchanges[stream_id]
                self._http2.cancel(stream_id)
                break
        return self._http2.take()

    def _take(self, events: list[Event], now_ns: int, broken: str = "") -> list[Exchange]:
        """The exchanges that ended. What one read brought of one is one piece, however many frames it was."""
        pieces: dict[int, list[bytes]] = {}
        ended: dict[int, Exchange] = {}
        for event in events:
            stream_id = event.stream_id
            exchange = self._exchanges.get(stream_id)
            if exchange is None:
                continue
            if isinstance(event, Data):
                pieces.setdefault(stream_id, []).append(event.data)
                self._http2.consumed(stream_id, len(event.data))
            elif isinstance(event, Head):
                told = [(name, event.headers.get(name.decode(), "").encode("latin-1")) for name in HEAD_FIELDS]
                fill_head(exchange, event.status, dict(told))
            else:
                ended[stream_id] = exchange
                if isinstance(event, Done):
                    exchange.end_ns = now_ns
                else:
                    exchange.error = exchange.error or broken or ("reset" if self._http2.open else "closed")
        for stream_id, parts in pieces.items():
            self._exchanges[stream_id].pieces.append((now_ns, b"".join(parts)))
        for stream_id in ended:
            del self._exchanges[stream_id]
        return list(ended.values())


def http2_payload(fields: list[tuple[str, str]], body: bytes) -> bytes:
    """A request as the length of its head's block, the block and the body. It is the same on every connection."""
    block = head_block(fields)
    return len(block).to_bytes(_LENGTH_BYTES) + block + body
