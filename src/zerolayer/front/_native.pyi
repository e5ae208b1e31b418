"""What the door does for all streams of a step, compiled; implemented in src/zerolayer/native/front_module.cpp."""

from collections.abc import Callable, Mapping, Sequence
from typing import final

from zerolayer.errors import RetryLater, ZerolayerError
from zerolayer.front.dialect import Dialect
from zerolayer.front.exchange import Action, Carrier, ErrorReply, Headers
from zerolayer.front.lines import Frames, Line
from zerolayer.front.outbox import Writer
from zerolayer.front.plain import PlainTransport
from zerolayer.front.receipt import Receipt
from zerolayer.front.site import Site
from zerolayer.guard.identity import Identity
from zerolayer.model.engine import SampledToken
from zerolayer.observe.stages import StageClock
from zerolayer.wire.http1 import Head

def send_each(descriptors: list[int], pieces: list[bytes], let_go: bool = True, /) -> list[tuple[int, int]]:
    """Offer each piece to its socket once, without waiting; ``let_go``: and without the interpreter's lock.

    Returns (place, bytes sent) of each that was not sent as a whole, whatever the reason. Raises ``ValueError`` where
    the lists are not of one length, ``TypeError`` for anything but integers and bytes.
    """

def send_now(descriptor: int, data: bytes, /) -> int:
    """The bytes that the kernel took at once, 0 where it has no room; or the number of an error, negative."""

@final
class Sockets:
    """An epoll instance (epoll(7)) of the sockets of ``transport``'s kind, which has ``__slots__`` for what it reads.

    All of its methods but ``accept`` raise ``OSError``.
    """

    def __init__(self, transport: type[PlainTransport], /) -> None: ...
    def fileno(self) -> int:
        """It is readable while one of the sockets is."""

    def close(self) -> None:
        """Watch nobody any more."""

    def accept(self, listening: int, most: int, room: int, /) -> tuple[list[tuple[int, str, bytes]], int]:
        """Accept at most so many connections without waiting, and watch the first ``room`` of them for bytes to read.

        None of them blocks or is inherited. Returns their descriptors, the IP addresses of their peers and what those
        who are watched have said already, and the number of the error that ended it: 0 where nobody was left. Who
        cannot be watched is closed.
        """

    def add(self, descriptor: int, /) -> None:
        """Watch for bytes to read."""

    def watch(self, descriptor: int, was: bool, reads: bool, writes: bool, /) -> None:
        """Watch for bytes to read and for room to write from now on; ``was``: it was watched for one of them."""

    def look(self, transports: dict[int, PlainTransport], /) -> None:
        """Read where bytes have come and hand them on; tell of room, of ends and of errors.

        At most 64 sockets, each once. Whoever fails at what it is told is told so by ``broken``.
        """

    def send(self, transports: list[PlainTransport], many: int, /) -> list[tuple[int, int]]:
        """Offer the kernel the ``piece`` of each; ``many`` ones without the interpreter's lock. Who is sent has none.

        They are one system call where the kernel has a ring for us. Returns the places of those of whom it did not
        take all, and how many bytes it did take.
        """

@final
class Growth:
    """What a step's plain tokens become. ``types`` are the classes that it reads, by their names.

    They are ``SampledToken``, ``Line``, ``Transcript``, ``Decoder``, ``SocketOutlet``, ``FrameOutlet``, ``Sender`` and
    ``Stream``. Raises ``TypeError`` where one of them does not keep in ``__slots__`` what is read of it.
    """

    def __init__(self, types: Mapping[str, type], /) -> None: ...
    def grow(
        self, tokens: Sequence[SampledToken], lines: list[Line | None], ended_ns: int, /
    ) -> tuple[list[SampledToken], int]:
        """Take each token whose slot has a line, if its text is all that it brings and its outlet is clear.

        It is counted in its transcript, and its bytes are kept for ``send``. Returns the tokens that are left to
        ``Running.push``, and how many of those that were taken came later than their clients allow.
        """

    def send(self, many: int, together: int, /) -> tuple[list[tuple[Writer, bytes]], list[Frames]]:
        """Offer what was taken to the kernel, in one send for each connection.

        From ``together`` ones on they are one system call where the kernel has a ring for us; ``many`` ones leave
        without the lock.

        Returns what the kernel did not take, and the HTTP/2 connections that have their frames back, since something
        is before them.
        """

class LineNumbers:
    """Numbers that C++ reads and writes in place; 0 at first."""

    last_ns: int
    gap_ns: int

class TranscriptNumbers:
    """As ``LineNumbers``."""

    completion_tokens: int
    token_id: int

class SocketNumbers:
    """As ``LineNumbers``; ``chunked`` and ``sure`` are 0 or 1."""

    descriptor: int
    chunked: int
    sure: int

@final
class RequestIds:
    """Names of requests: ``prefix``, then a number in at least eight hexadecimal digits."""

    def __init__(self, prefix: bytes) -> None: ...
    def new(self) -> bytes:
        """A name that no other has that these made."""

class CommonHeadersBase:
    """What of ``CommonHeaders`` is done for every reply. Subclasses have ``_tell`` and ``_fit``."""

    _wall_s: Callable[[], float]
    _load: Callable[[], bytes]
    _told_load: bytes
    _start: bytes
    _between: bytes
    _after: bytes
    _id_bytes: int

    def usual(self, request_id: bytes, /) -> bytes:
        """``_start``, the wall clock with six decimals, ``_between``, the id, ``_after``.

        ``_tell`` is called first where ``_load`` gives something else than ``_told_load``, and ``_fit`` where an id
        has not ``_id_bytes``. Raises what they raise, and ``ValueError`` where the clock shows no time.
        """

class ExchangeBase:
    """The fields of every exchange, its name, its account of time, and the end of its reply.

    ``id`` is the client's own ``x-request-id`` where it is at most 128 visible ASCII characters, else one of the
    site's. Subclasses have no fields of their own, and ``_file``.
    """

    head: Head
    id: bytes
    stages: StageClock
    action: Action | None
    intake: Callable[[bytes, bool], None] | None
    on_gone: Callable[[], None] | None
    receipt: Receipt | None
    identity: Identity
    dialect: Dialect
    explain: Callable[[ZerolayerError], ErrorReply] | None
    more_headers: Headers
    allow: bytes
    body: bytes
    media: Headers
    expired: Callable[[], None] | None
    streaming: bool
    tells_when: Callable[[RetryLater], bytes] | None
    deadline_ns: int
    _connection: Carrier
    _site: Site
    _left: bool
    _parked: bool

    def __init__(self, connection: Carrier, site: Site, head: Head | None, first_byte_ns: int, /) -> None: ...
    @staticmethod
    def begin_with(kind: Mapping[str, object], /) -> None:
        """What all exchanges share, told once: types by their names, and what a new exchange begins with."""

    def mark(self, stage: int, /) -> None:
        """Close the span since the last mark."""

    def reply(
        self, status: int, headers: Headers, body: bytes, /, *, keep_alive: bool = True, spelled: bytes = b""
    ) -> None:
        """A complete reply, in one write. After the end of a reply every further one is void.

        ``spelled`` are headers as the carrier writes them.
        """

    def end_stream(self, events: bytes, trailers: Headers = (), /) -> None:
        """The last events; the stream ends as complete. Where it has not begun, all of it is one write."""

    def _finish(self, status: int, /) -> None:
        """The last write is next; what the ledger is to tell comes before it."""

    def _leave(self, last: int, /) -> None:
        """Close the account, once: a client that is cut by its own last write has left already."""
