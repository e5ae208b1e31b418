"""gRPC calls on HTTP/2 streams, and the table by which a service offers its methods.

To offer a method, put it into the table that ``serve`` hands to ``Calls``: the path ``/package.Service/Method`` -> a
``Method`` with a handler, a function of the call and one request message (bytes, not decoded). The handler answers at
once or later, on the loop: ``call.send`` any number of messages, then ``call.finish`` or ``call.fail``. A
``ZerolayerError`` that it raises fails the call, anything else is a defect and costs this call only. If the client
leaves or its deadline passes first, ``call.on_gone`` is called, once. Who answers over HTTP too, and needs of a call no
more than its exchange, is an ``action``: it finds the message as the exchange's body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
from zerolayer.front.exchange import Action, ErrorReply, Exchange, Headers
from zerolayer.observe.stages import Stage
from zerolayer.wire.grpc import (
    CONTENT_TYPE,
    IDENTITY,
    OK_TRAILERS,
    PARTIAL,
    Deframer,
    frame,
    later_fields,
    not_one,
    only_message,
    parse_timeout,
    status_trailers,
)
from zerolayer.wire.http1_head import HTTP2, Head

_PARSE: Final = int(Stage.PARSE)  # for every call: a member of an enumeration is dearer to name
_MEDIA: Final[Headers] = (CONTENT_TYPE,)
_TOLD: Final[ErrorReply] = (200, (), b"")
_HOW: Final = "a message is marked as compressed, and no grpc-encoding of the call says how; clear its Compressed-Flag"

Handler = Callable[["GrpcCall", bytes | None], None]


class Method(msgspec.Struct, frozen=True):
    """``handler`` gets the one message of a call. With ``streaming`` it gets each message as it comes, then None.

    An ``action`` takes its place where nothing is streamed to it. ``message_bytes`` is the most that a message may
    have, where that is less than elsewhere. Calls that are streamed hold what they have of a message for as long as
    they last, many to a connection, so theirs should be small.
    """

    handler: Handler | None = None
    streaming: bool = False
    message_bytes: int | None = None
    action: Action | None = None


class GrpcCall:
    """One call. ``metadata`` is the request's head; ``exchange`` has the account, the caller and the request id."""

    __slots__ = ("_deframer", "_handler", "exchange")

    def __init__(self, exchange: Exchange, handler: Handler | None = None, message_bytes: int = 0) -> None:
        """``handler`` is that of a call that its client streams."""
        self.exchange = exchange
        self._handler = handler
        self._deframer = None if handler is None else Deframer(message_bytes)

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
        _fail(self.exchange, error)

    def take(self, data: bytes, ended: bool) -> None:
        """Bytes of a request that its client streams."""
        deframer, handler = self._deframer, self._handler
        if deframer is None or handler is None:
            return
        try:
            messages = deframer.receive(data)
            if ended and deframer.partial:
                raise InvalidRequest(PARTIAL)
            self.exchange.mark(_PARSE)
            for message in messages:
                handler(self, message)
            if ended:
                handler(self, None)
        except ZerolayerError as error:
            _fail(self.exchange, error)


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
        exchange.explain, exchange.tells_when, exchange.media = _explain, later_fields, _MEDIA
        method = self.method(head)
        if method is None:
            return UnknownMethod("there is no such method; server reflection or the .proto file lists what exists")
        return self.begin(exchange, method)

    def method(self, head: Head) -> Method | None:
        """What the head asks for."""
        return self._methods.get(head.path) if head.method == "POST" else None

    def begin(self, exchange: Exchange, method: Method) -> ZerolayerError | None:
        """Make the exchange a call of ``method``, or return the refusal."""
        exchange.explain, exchange.tells_when, exchange.media = _explain, later_fields, _MEDIA
        timeout = exchange.head.values.get(b"grpc-timeout")
        if timeout is not None:
            try:
                exchange.deadline_ns = self._clock_ns() + parse_timeout(timeout)
            except InvalidRequest as error:
                return error
            exchange.expired = partial(_expire, exchange)
        if method.streaming:
            exchange.intake = GrpcCall(exchange, method.handler, self._most(method)).take
        else:
            exchange.action = partial(self._take_whole, method)
        return None

    def _most(self, method: Method) -> int:
        most = method.message_bytes
        return self._message_bytes if most is None else most

    def _take_whole(self, method: Method, exchange: Exchange) -> None:
        """The action of a call that is not streamed by its client."""
        try:
            most = self._most(method)
            message = only_message(exchange.body, most)
            exchange.mark(_PARSE)
            if message is None:
                raise not_one(exchange.body, most)
            if method.action is not None:
                exchange.body = message
                method.action(exchange)
            elif method.handler is not None:
                method.handler(GrpcCall(exchange), message)
        except ZerolayerError as error:
            _fail(exchange, error)


def _fail(exchange: Exchange, error: ZerolayerError) -> None:
    if isinstance(error, UnsupportedEncoding) and exchange.head.get(b"grpc-encoding") in (None, IDENTITY):
        # A message is compressed that cannot be: the fault lies elsewhere than in what this server can undo.
        error = NotCompressed(_HOW)
    if exchange.streaming:
        if exchange.receipt is not None:
            exchange.receipt.failed(error)
        exchange.end_stream(b"", status_trailers(error))
    else:
        exchange.error(error)


def _expire(exchange: Exchange) -> None:
    """The client's deadline has passed."""
    gone, exchange.on_gone = exchange.on_gone, None
    if gone is not None:
        gone()
    _fail(exchange, DeadlineExceeded("the deadline of this call passed before its reply was complete"))


def _explain(error: ZerolayerError) -> ErrorReply:
    """Trailers-only: the status in the only HEADERS, HTTP 200 whatever happened. ``later_fields`` told the others."""
    return _TOLD if isinstance(error, RetryLater) else (200, (CONTENT_TYPE, *status_trailers(error)), b"")
