"""One request and its reply, sans-IO: bytes with their times in, a record of the exchange out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httptools
import msgspec

from zerolayer.check.causes import GATEWAYS, gateway
from zerolayer.client.errors import BadReply
from zerolayer.client.sse import EventReader

MAX_WAIT_MS = 10**9
# What ``fill_head`` looks at.
HEAD_FIELDS = (b"retry-after-ms", b"retry-after", b"server", b"content-type", *(name for name, _ in GATEWAYS))


@dataclass(frozen=True)
class Planned:
    """A request that is to be sent at ``intended_ns`` of the loop's clock, and where it belongs in the run."""

    intended_ns: int
    payload: bytes
    phase: str
    group: int
    size: int
    position: int
    body: bytes = b""  # by itself, so that a retry can send the same again


@dataclass(eq=False)
class Exchange:
    """What came of a planned request. Times in ns of the loop's clock; 0 = did not happen."""

    planned: Planned
    sent_ns: int = 0
    end_ns: int = 0
    status: int = 0
    promised_ms: int = -1
    lag_ns: int = 0
    aborted: bool = False
    error: str = ""
    server: str = ""
    gateway: str = ""  # as recognised
    content_type: str = ""
    pieces: list[tuple[int, bytes]] = field(default_factory=list)  # body bytes of one socket read, with its time

    @property
    def whole(self) -> bool:
        """The reply came to its end."""
        return self.end_ns > 0 and not self.error and not self.aborted

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


class ReplyParser:
    """Fills an ``Exchange`` from the bytes of its reply; ``feed`` returns True once the reply is complete."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.reusable = False
        self._parser = httptools.HttpResponseParser(self)
        self._framed = False
        self._complete = False
        self._body: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}

    def feed(self, data: bytes, now_ns: int) -> bool:
        """Take one read. Bytes that are no HTTP end the exchange with an error."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.exchange.error = "not HTTP"
            self._complete = True
        if self._body:
            self.exchange.pieces.append((now_ns, b"".join(self._body)))
            self._body.clear()
        if self._complete:
            self.exchange.end_ns = now_ns
        return self._complete

    def end_of_file(self, now_ns: int) -> None:
        """The connection ended: the end of a reply without framing, and a cut in any other."""
        if self.exchange.status and not self._framed:
            self.exchange.end_ns = now_ns
        else:
            self.exchange.error = "cut" if self.exchange.status else "closed"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Called by httptools."""
        status = self._parser.get_status_code()
        if status < 200:
            self._headers.clear()
            return
        headers = self._headers
        fill_head(self.exchange, status, headers)
        self._framed = b"content-length" in headers or b"transfer-encoding" in headers or status in (204, 304)

    def on_body(self, data: bytes) -> None:
        """Called by httptools."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Called by httptools; also after an interim reply such as 100 Continue."""
        if self.exchange.status:
            self._complete = True
            self.reusable = self._parser.should_keep_alive()


def fill_head(exchange: Exchange, status: int, headers: dict[bytes, bytes]) -> None:
    """What a reply's head says; names of ``headers`` are lower case."""
    exchange.status = status
    exchange.promised_ms = promised_ms(headers)
    exchange.server = headers.get(b"server", b"").decode("latin-1")
    exchange.gateway = gateway(headers)
    exchange.content_type = headers.get(b"content-type", b"").decode("latin-1")


def promised_ms(headers: dict[bytes, bytes]) -> int:
    """When to come back: ``retry-after-ms``, else ``retry-after`` in seconds, fractions included; -1 if not said.

    Stock clients read them in this order (openai-python 3.57). Dates (RFC 9110 section 10.2.3) count as not said: no
    model server sends them, and they cannot name a time within the second.
    """
    for name, factor in ((b"retry-after-ms", 1), (b"retry-after", 1000)):
        try:
            value = float(headers.get(name, b""))
        except ValueError:
            continue
        if 0 <= value * factor <= MAX_WAIT_MS:
            return round(value * factor)
    return -1


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: Any = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    input_tokens: int | None = None


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    """What OpenAI's chunks and Anthropic's events have in common with what is counted."""

    choices: list[_Choice] | None = None
    type: str | None = None
    message: _Message | None = None
    usage: _Usage | None = None


@dataclass(frozen=True)
class Tokens:
    """Content events of a reply: (time in ns, events completed) of each read that had body bytes."""

    reads: list[tuple[int, int]]
    prompt_tokens: int

    @property
    def count(self) -> int:
        return sum(events for _, events in self.reads)

    @property
    def first_ns(self) -> int:
        """When the first content came; 0 if none did. Role chunks, pings and usage are no content."""
        return next((time for time, events in self.reads if events), 0)


_DECODER = msgspec.json.Decoder(_Event)


def read_tokens(exchange: Exchange) -> Tokens:
    """Count what a stream brought, read by read. Not done while sockets wait: it takes time of its own."""
    if "text/event-stream" not in exchange.content_type:
        return Tokens([], _usage(exchange.body))
    reader, prompt, reads = EventReader(), -1, []
    for time_ns, piece in exchange.pieces:
        try:
            events = reader.push(piece)
        except BadReply:
            break
        content = 0
        for data in events:
            event = _decode(data)
            if event is not None:
                content += _is_content(event)
                prompt = max(prompt, _prompt_tokens(event))
        reads.append((time_ns, content))
    return Tokens(reads, prompt)


def _decode(data: bytes) -> _Event | None:
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_content(event: _Event) -> bool:
    if event.type == "content_block_delta":
        return True
    for choice in event.choices or ():
        delta = choice.delta
        parts = (
            (choice.text,)
            if delta is None
            else (
                choice.text,
                delta.content,
                delta.reasoning_content,
                delta.reasoning,
                delta.tool_calls,
            )
        )
        if any(parts):
            return True
    return False


def _prompt_tokens(event: _Event) -> int:
    usages = [event.usage, event.message.usage if event.message else None]
    values = [value for usage in usages if usage for value in (usage.prompt_tokens, usage.input_tokens)]
    return max((value for value in values if value is not None), default=-1)


def _usage(body: bytes) -> int:
    event = _decode(body) if body.startswith(b"{") else None
    return _prompt_tokens(event) if event is not None else -1
