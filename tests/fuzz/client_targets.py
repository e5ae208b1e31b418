"""Targets of the client's parsers: what a server, or whoever answers in its place, sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import hpack

from zerolayer.client.errors import BadReply, Refused
from zerolayer.client.http1 import ReplyReader
from zerolayer.client.http2 import Http2Client
from zerolayer.client.schema_form import GrpcForm, SchemaForm
from zerolayer.client.sse import EventReader
from zerolayer.wire.http2_frames import settings

_FIELDS = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]


def replies(data: bytes) -> None:
    """A reply says the same however it is cut, or is refused. The first byte is the protocol, the second the cut."""
    read = _READERS[data[0] % len(_READERS)] if data else _READERS[0]
    cut = data[1] % max(1, len(data) - 2) if len(data) > 2 else 0
    data = data[2:]
    assert _read(read, [data]) == _read(read, [data[:cut], data[cut:]])


def _read(read: Callable[[Iterable[bytes]], object], pieces: list[bytes]) -> object:
    try:
        return read(pieces)
    except (BadReply, Refused) as refused:
        return type(refused)


def _http1(pieces: Iterable[bytes]) -> object:
    reader = ReplyReader()
    body = b"".join([reader.push(piece) for piece in pieces])
    return reader.status, reader.headers, body, reader.begun, reader.complete


def _http2(pieces: Iterable[bytes]) -> object:
    client = Http2Client(hpack.Decoder())
    client.request(_FIELDS, b"body")
    client.receive(settings({}))
    events = [event for piece in pieces for event in client.receive(piece)]
    return events, client.take(), client.streams


def _events(pieces: Iterable[bytes]) -> object:
    reader = EventReader()
    return [event for piece in pieces for event in reader.push(piece)]


def _messages(form: SchemaForm | GrpcForm) -> Callable[[Iterable[bytes]], object]:
    def read(pieces: Iterable[bytes]) -> object:
        reader = form.reader("m")
        return [text for piece in pieces for text in reader.push(piece)], reader.outcome

    return read


_READERS = (_http1, _http2, _events, _messages(SchemaForm()), _messages(GrpcForm()))
