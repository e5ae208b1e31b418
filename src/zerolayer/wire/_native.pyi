"""What the wire does for every request and reply, compiled; implemented in src/zerolayer/native/wire_module.cpp.

Everything here is pure. ``tests/wire/specification`` has the same in Python.
"""

from collections import deque
from collections.abc import Callable

from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_stream import State

_Headers = tuple[tuple[bytes, bytes], ...]

class Http1Replies:
    """``lines`` are status lines by status."""

    def __init__(self, lines: dict[int, bytes], /) -> None: ...
    def render(
        self,
        status: int,
        common: bytes,
        headers: _Headers,
        body: bytes,
        keep_alive: bool,
        head_only: bool,
        /,
    ) -> bytes:
        """A complete reply. Raises ``ValueError`` where a header holds a line break, ``KeyError`` for no status."""

def http2_reply(
    stream: int, status: bytes, common: bytes, headers: _Headers, body: bytes, trailers: bytes, /
) -> bytes | None:
    """The frames of a complete reply; ``status`` and ``trailers`` are rendered. None where one part takes two frames.

    Raises ``ValueError`` as ``Http1Replies.render``.
    """

def http1_when(ms: int, ticket: str, /) -> bytes:
    """When to come back, in milliseconds and in seconds rounded up, and the ticket for it, if there is one.

    Raises ``ValueError`` where the ticket is anything but visible ASCII and spaces.
    """

def http2_when(ms: int, ticket: str, /) -> bytes:
    """The same as literals of HPACK."""

def joined(parts: tuple[bytes, ...], number: int, /) -> bytes:
    """The parts with ``number`` in decimal digits between each two of them."""

def later_message(before: bytes, parts: tuple[bytes, ...], number: int, after: bytes, /) -> bytes:
    """An ``Error`` of ``inference.proto``: ``joined`` parts as its message, ``number`` as its milliseconds, if not 0.

    ``before`` and ``after`` are its other fields.
    """

def own_names(values: dict[bytes, bytes], /) -> dict[bytes, bytes]:
    """The same dictionary, or one with each ``zl-name`` as ``x-zl-name`` too, where there are such names."""

def grpc_frame(message: bytes, /) -> bytes:
    """One message of gRPC as it travels in DATA, not compressed."""

def grpc_message(body: bytes, most: int, /) -> bytes | None:
    """The message that ``body`` is, if it is one of at most ``most`` bytes that is not compressed."""

class WholeRequests:
    """Finds requests of HTTP/2 that came whole; ``head`` is the type of their heads."""

    def __init__(self, head: type[Head], /) -> None: ...
    def find(
        self,
        data: bytes,
        heads: dict[bytes, Head],
        known: Callable[[bytes], Head | None],
        last_id: int,
        room: int,
        body_bytes: int,
        most: int,
        /,
    ) -> list[tuple[int, Head, bytes]] | None:
        """Streams, heads and bodies of the requests that ``data`` is from the first byte to the last.

        Each is one HEADERS, and at most one DATA, without padding; ``heads``, else ``known``, give the head of a block.
        None where anything else is in it, where the head of one is not known or waits for 100 (Continue), where an id
        is not above ``last_id`` and those before it, where a body has not the size that its head declares or is
        longer than ``body_bytes``, and where all bodies are longer than ``room`` or there are more than ``most``.
        """

class Huffman:
    """HPACK's code, from a table of (next state, flags, symbol) by state and half byte: flags as ``hpack``'s."""

    def __init__(self, table: list[tuple[int, int, int]], /) -> None: ...
    def decode(self, string: bytes, /) -> bytes | None:
        """None where no text has this coding."""

class Template:
    """``head`` with holes: ``places`` are those of headers, at most eight. ``constants`` are one more."""

    def __init__(self, constants: tuple[bytes, ...], places: tuple[int, ...], head: Head, /) -> None: ...
    def http1(self, raw: bytes, /) -> Head | None:
        """The head that ``raw`` is, where it differs from the constants in well-formed values only."""

    def http2(self, block: bytes, huffman: Huffman, /) -> Head | None:
        """The same of a header block. Raises ``ValueError`` where a string has no Huffman coding."""

class StreamBase:
    """The fields of a stream; ``native/front_growth.hpp`` reads and writes some of them in place.

    What is no argument is 0, empty, false or None at first.
    """

    id: int
    window: int
    room: int
    declared: int | None
    state: State
    received: int
    sent_bytes: int
    body: bytes | bytearray
    incremental: bool
    refused: bool
    pending: deque[bytes | memoryview] | None
    pending_bytes: int
    ending: bytes | None

    def __init__(
        self, stream_id: int, window: int, room: int, declared: int | None, state: State, received: int = 0
    ) -> None: ...

class SenderNumbers:
    """Numbers that C++ reads and writes in place (``native/front_growth.hpp``); 0 at first."""

    window: int
    out_bytes: int
    place: int
    free: int
