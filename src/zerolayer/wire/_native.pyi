"""What the wire does for every request and reply, compiled; implemented in src/zerolayer/native/wire_module.cpp.

Everything here is pure. ``tests/wire/specification`` has the same in Python.
"""

from array import array
from collections import deque
from collections.abc import Callable

from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.http1_head import Head
from zerolayer.wire.http2_sending import Sender
from zerolayer.wire.http2_stream import State, Stream
from zerolayer.wire.openai import PlainChat, PlainCompletion, PlainOptions
from zerolayer.wire.protobuf_plan import Plan
from zerolayer.wire.schema import Message, Request, Route, Sampling

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

class WholeReplies:
    """Puts whole replies behind what a connection collects, up to ``enough`` bytes of it."""

    def __init__(self, sender: type[Sender], stream: type[Stream], enough: int, /) -> None: ...
    def put(
        self,
        sender: Sender,
        stream: Stream,
        status: bytes,
        common: bytes,
        headers: _Headers,
        body: bytes,
        trailers: bytes,
        /,
    ) -> bool:
        """The frames of ``http2_reply``, if they may leave now. False where they may not; then nothing was done.

        Raises as ``http2_reply``.
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

class GrpcLater:
    """Refusals of gRPC that pass, of one kind: ``constant`` is what all of them say, as HTTP/2 writes it."""

    def __init__(self, constant: bytes, parts: tuple[bytes, ...], /) -> None: ...
    def fields(self, ms: int, ticket: str, /) -> bytes:
        """``constant``, ``joined`` parts as ``grpc-message``, the time as ``grpc-retry-pushback-ms``, and the ticket.

        Raises ``ValueError`` as ``http1_when``.
        """

def own_names(values: dict[bytes, bytes], /) -> dict[bytes, bytes]:
    """The same dictionary, or one with each ``zl-name`` as ``x-zl-name`` too, where there are such names."""

def grpc_frame(message: bytes, /) -> bytes:
    """One message of gRPC as it travels in DATA, not compressed."""

def grpc_message(body: bytes, most: int, /) -> bytes | None:
    """The message that ``body`` is, if it is one of at most ``most`` bytes that is not compressed."""

class WholeRequests:
    """Finds requests of HTTP/2 that came whole, and opens their streams, which begin in the state ``complete``."""

    def __init__(self, head: type[Head], stream: type[Stream], complete: State, /) -> None: ...
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

    def open(self, found: list[tuple[int, Head, bytes]], streams: dict[int, Stream], window: int, room: int, /) -> int:
        """Add a stream for each to ``streams``: ``window`` may be sent in it, ``room`` could be received.

        Returns how many bytes all bodies have.
        """

class PlainBodies:
    """Makes requests of the bodies of ``route``, which ``read`` gives as the type ``plain`` (``openai``).

    The further types are what bodies hold, their limits, and what is made of them.
    """

    def __init__(
        self,
        read: Callable[[bytes], PlainChat | PlainCompletion],
        plain: type[PlainChat] | type[PlainCompletion],
        route: Route,
        message: type[Message],
        options: type[PlainOptions],
        limits: type[BodyLimits],
        request: type[Request],
        sampling: type[Sampling],
        /,
    ) -> None: ...
    def decode(self, body: bytes, limits: BodyLimits, /) -> Request | None:
        """The request that ``body`` is. None: ``openai_general`` is to say what it is, or what is wrong with it.

        ``read`` may raise ``ValueError`` or ``RecursionError``.
        """

    def request(self, body: PlainChat | PlainCompletion, limits: BodyLimits, /) -> Request | None:
        """The same of a body that was read."""

class PlannedBodies:
    """Makes requests of the schema's bodies whose tails have been read before; ``roles`` are those of numbers 1 to 3.

    The routes are those of requests that have token ids, and messages.
    """

    def __init__(
        self,
        plan: type[Plan],
        ids: type[array[int]],
        message: type[Message],
        request: type[Request],
        by_ids: Route,
        by_messages: Route,
        roles: tuple[str, str, str],
        /,
    ) -> None: ...
    def decode(self, body: bytes, plans: dict[bytes, Plan], body_bytes: int, most_messages: int, /) -> Request | None:
        """The request that ``body`` is, if it has at most ``body_bytes``.

        Token ids are fewer than 4,096, messages have a role and then a content, of less than 16 KB, and nothing stands
        between them and the tail. None for all else.
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

    def __init__(self, stream_id: int, window: int, room: int, declared: int | None, state: State) -> None: ...

class SenderNumbers:
    """Numbers that C++ reads and writes in place (``native/front_growth.hpp``); 0 at first."""

    window: int
    out_bytes: int
    place: int
    free: int
