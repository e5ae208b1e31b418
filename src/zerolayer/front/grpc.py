"""gRPC calls on HTTP/2 streams, and the table by which a service offers its methods.

To offer a method, put it into the table that ``serve`` hands to ``Calls``: the path ``/package.Service/Method`` -> a
``Method`` with a handler, a function of the call and one request message (bytes, not decoded). The handler answers at
once or later, on the loop: ``call.send`` any number of messages, then ``call.finish`` or ``call.fail``. A
``ZerolayerError`` that it raises fails the call, anything else is a defect and costs this call only. If the client
leaves or its deadline passes first, ``call.on_gone`` is called, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from zerolayer.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotCompressed,
    RetryLater,
    UnknownMethod,
    UnsupportedEncoding,
    UnsupportedMediaType,
    ZerolayerError,
)
from zerolayer.front.exchange import ErrorReply, Exchange, Headers
from zerolayer.observe.stages import Stage
from zerolayer.wire.grpc import (
    CONTENT_TYPE,
    IDENTITY,
    OK_TRAILERS,
    PARTIAL,
    Deframer,
    frame,
    later_trailers,
    not_one,
    only_message,
    parse_timeout,
    status_trailers,
)
from zerolayer.wire.http1_head import HTTP2, Head

_PARSE: Final = int(Stage.PARSE)  # for every call: a member of an enumeration is dearer to name
_MEDIA: Final[Headers] = (CONTENT_TYPE,)
_HOW: Final = "a message is marked as compressed, and no grpc-encoding of the call says how; clear its Compressed-Flag"

Handler = Callable[["GrpcCall", bytes | None], None]


class Method(msgspec.Struct, frozen=True):
    """``handler`` gets the one message of a call. With ``streaming`` it gets each message as it comes, then None.

    ``message_bytes`` is the most that a message may have, where that is less than elsewhere. Calls that are streamed
    hold what they have of a message for as long as they last, many to a connection, so theirs should be small.
    """

    handler: Handler
    streaming: bool = False
    message_bytes: int | None = None


class GrpcCall:
    """One call. ``metadata`` is the request's head; ``exchange`` has the account, the caller and the request id."""

    __slots__ = ("_deframer", "_message_bytes", "_method", "exchange")

    def __init__(self, exchange: Exchange, method: Method, message_bytes: int) -> None:
        self.exchange = exchange
        self._method = method
        self._message_bytes = message_bytes
        self._deframer: Deframer | None = None  # of a call that its client streams

    @property
    def metadata(self) -> Head:
        """What the client said before its message."""
        return self.exchange.head

    @property
    def deadline_ns(self) -> int:
        """Monotonic nanoseconds of the client's ``grpc-timeout``; 2^63 without one."""
        return self.exchange.deadline_ns

    @property
    def on_gone(self) -> Callable[[], None] | None:
        """Called once if the client leaves, or its deadline passes, before the end."""
        return self.exchange.on_gone

    @on_gone.setter
    def on_gone(self, gone: Callable[[], None] | None) -> None:
        self.exchange.on_gone = gone

    def send(self, message: bytes) -> None:
        """One message to the client."""
        self.exchange.stream(frame(message))

    def finish(self, message: bytes | None = None) -> None:
        """The last message, if any, and the status OK."""
        self.exchange.end_stream(b"" if message is None else frame(message), OK_TRAILERS)

    def fail(self, error: ZerolayerError) -> None:
        """The status of ``error``, whatever was sent before."""
        if self.exchange.streaming:
            if self.exchange.receipt is not None:
                self.exchange.receipt.failed(error)
            self.exchange.end_stream(b"", status_trailers(error))
        else:
            self.exchange.error(error)

    def take(self, data: bytes, ended: bool) -> None:
        """Bytes of a request that its client streams."""
        deframer = self._deframer = self._deframer or Deframer(self._message_bytes)
        try:
            messages = deframer.receive(data)
            if ended and deframer.partial:
                raise InvalidRequest(PARTIAL)
            self.exchange.mark(_PARSE)
            for message in messages:
                self._method.handler(self, message)
            if ended:
                self._method.handler(self, None)
        except UnsupportedEncoding as error:
            self._fail_compressed(error)
        except ZerolayerError as error:
            self.fail(error)

    def take_whole(self, exchange: Exchange) -> None:
        """The action of a call that is not streamed by its client."""
        try:
            message = only_message(exchange.body, self._message_bytes)
            exchange.mark(_PARSE)
            if message is None:
                raise not_one(exchange.body, self._message_bytes)
            self._method.handler(self, message)
        except UnsupportedEncoding as error:
            self._fail_compressed(error)
        except ZerolayerError as error:
            self.fail(error)

    def _fail_compressed(self, error: UnsupportedEncoding) -> None:
        """A message is compressed; if it cannot be, the fault lies elsewhere than in what this server can undo."""
        how = self.metadata.get(b"grpc-encoding")
        self.fail(NotCompressed(_HOW) if how in (None, IDENTITY) else error)

    def expire(self) -> None:
        """The client's deadline has passed."""
        gone, self.exchange.on_gone = self.exchange.on_gone, None
        if gone is not None:
            gone()
        self.fail(DeadlineExceeded("the deadline of this call passed before its reply was complete"))


class Calls:
    """Path -> method. ``clock_ns`` is monotonic; a message has at most ``message_bytes``."""

    def __init__(self, methods: Mapping[str, Method], clock_ns: Callable[[], int], message_bytes: int) -> None:
        self._methods = methods
        self._clock_ns = clock_ns
        self._message_bytes = message_bytes

    def check(self, exchange: Exchange) -> ZerolayerError | None:
        """Decide on the head alone; prepares the exchange for its call or returns the refusal."""
        head = exchange.head
        if head.minor < HTTP2:
            return UnsupportedMediaType("gRPC needs HTTP/2; use a gRPC client, or send JSON to /v1/chat/completions")
        exchange.explain, exchange.tells_when, exchange.media = _explain, False, _MEDIA
        method = self.method(head)
        if method is None:
            return UnknownMethod("there is no such method; server reflection or the .proto file lists what exists")
        return self.begin(exchange, method)

    def method(self, head: Head) -> Method | None:
        """What the head asks for."""
        return self._methods.get(head.path) if head.method == "POST" else None

    def begin(self, exchange: Exchange, method: Method) -> ZerolayerError | None:
        """Make the exchange a call of ``method``, or return the refusal."""
        exchange.explain, exchange.tells_when, exchange.media = _explain, False, _MEDIA
        most = method.message_bytes
        call = GrpcCall(exchange, method, self._message_bytes if most is None else most)
        timeout = exchange.head.values.get(b"grpc-timeout")
        if timeout is not None:
            try:
                exchange.deadline_ns = self._clock_ns() + parse_timeout(timeout)
            except InvalidRequest as error:
                return error
            exchange.expired = call.expire
        if method.streaming:
            exchange.intake = call.take
        else:
            exchange.action = call.take_whole
        return None


def _explain(error: ZerolayerError) -> ErrorReply:
    """Trailers-only: the status in the only HEADERS, HTTP 200 whatever happened."""
    trailers = later_trailers(error) if isinstance(error, RetryLater) else status_trailers(error)
    return 200, (CONTENT_TYPE, *trailers), b""
