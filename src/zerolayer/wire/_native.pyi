"""What the wire does for every request and reply, compiled; implemented in src/zerolayer/native/wire_module.cpp.

Everything here is pure. ``tests/wire/specification`` has the same in Python.
"""

from zerolayer.wire.http1_head import Head

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

def whole_request(data: bytes, at: int, /) -> tuple[int, bytes, bytes, int] | None:
    """The HTTP/2 request that begins at ``at``, if all of it is there in one HEADERS and at most one DATA, unpadded.

    Returns stream, header block, body, and the offset behind it.
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

class StreamNumbers:
    """Numbers that C++ reads and writes in place (``native/front_growth.hpp``); 0 at first."""

    id: int
    window: int
    sent_bytes: int

class SenderNumbers:
    """As ``StreamNumbers``."""

    window: int
    out_bytes: int
    place: int
