"""Replies of the Responses API: the events of a stream in their order, and the object that both kinds of reply end in.

Source: https://platform.openai.com/docs/api-reference/responses-streaming. Every event has a ``sequence_number`` and
its name twice, in the ``event`` line and in its ``type``. What goes wrong after the 200 is a ``response.failed``:
clients that see anything else ask again, and again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from zerolayer.errors import RetryLater, ZerolayerError
from zerolayer.wire.openai_logprobs import LogprobWriter, TokenBytes
from zerolayer.wire.schema import Account, CallDelta, FinishReason, Route, TokenLogprob, Usage

_encode = msgspec.json.Encoder().encode


class _InputDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int = 0  # nobody pays for what is kept


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int = 0


class _Usage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: _InputDetails
    output_tokens: int
    output_tokens_details: _OutputDetails
    total_tokens: int


class _Text(msgspec.Struct):
    text: str
    logprobs: Sequence[msgspec.Raw]
    type: str = "output_text"
    annotations: tuple[()] = ()


class _Message(msgspec.Struct):
    id: str
    status: str
    content: Sequence[_Text]
    type: str = "message"
    role: str = "assistant"


class _Call(msgspec.Struct):
    id: str
    call_id: str
    name: str
    arguments: str
    status: str
    type: str = "function_call"


class _Error(msgspec.Struct):
    code: str
    message: str
    help: str


class _Incomplete(msgspec.Struct):
    reason: str


class _Entries(msgspec.Struct):
    content: list[msgspec.Raw]


_entries = msgspec.json.Decoder(_Entries)


class _Event(msgspec.Struct, omit_defaults=True):
    """Any event but those that carry the whole response; members that an event does not have are left out."""

    type: str
    sequence_number: int = -1
    output_index: int = -1
    item_id: str | None = None
    content_index: int | None = None
    item: _Message | _Call | None = None
    part: _Text | None = None
    delta: str | None = None
    text: str | None = None
    logprobs: Sequence[msgspec.Raw] | None = None
    name: str | None = None
    arguments: str | None = None


class ResponseWriter:
    """One response, event by event: ``open``, ``text`` and ``calls``, ``finish``; or ``fail`` instead.

    ``told`` are the members of the request that every response object repeats. For a reply that is no stream the events
    are void, and ``body`` takes the place of the last one.
    """

    def __init__(self, request_id: str, created: int, model: str, told: bytes, token_bytes: TokenBytes | None) -> None:
        self._suffix = request_id
        self._head = b'{"id":%b,"object":"response","created_at":%d,"model":%b,%b' % (
            _encode("resp_" + request_id),
            created,
            _encode(model),
            told,
        )
        self._token_bytes = token_bytes  # None: no log probabilities were asked for
        self._logprobs = LogprobWriter(Route.CHAT)
        self._number = -1
        self._items: list[_Message | _Call] = []  # those that are complete
        self._pieces: list[str] | None = None  # of the message that is open
        self._scores: list[msgspec.Raw] = []
        self._call: _Call | None = None  # that is open
        self._arguments: list[str] = []

    def open(self) -> bytes:
        """The first two events."""
        started = self._response("in_progress")
        return self._whole("response.created", started) + self._whole("response.in_progress", started)

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        """More text, with the log probabilities of its tokens."""
        if not text:
            return b""
        events = b"" if self._pieces is not None else self._open_message()
        scores = self._entries(logprobs)
        self._scores += scores
        if self._pieces is not None:
            self._pieces.append(text)
        return events + self._event(
            _Event("response.output_text.delta", item_id=self._message_id, content_index=0, delta=text, logprobs=scores)
        )

    def calls(self, deltas: Sequence[CallDelta]) -> bytes:
        """More of the calls of tools."""
        events = []
        for delta in deltas:
            if delta.id:
                events += [self._close_message("completed"), self._close_call("completed"), self._open_call(delta)]
            if self._call is not None and delta.arguments:
                self._arguments.append(delta.arguments)
                event = _Event("response.function_call_arguments.delta", item_id=self._call.id, delta=delta.arguments)
                events.append(self._event(event))
        return b"".join(events)

    def finish(self, reason: FinishReason, usage: Usage, account: Account) -> bytes:
        """The ends of what is open, and the event with the whole response."""
        status = _status(reason)
        events = self._close(status)
        return events + self._whole(f"response.{status}", self._done(status, usage, account))

    def body(self, reason: FinishReason, usage: Usage, account: Account) -> bytes:
        """The whole response as the body of a reply."""
        status = _status(reason)
        self._close(status)
        return self._done(status, usage, account)

    def fail(self, error: ZerolayerError) -> bytes:
        """What went wrong after the 200 was sent."""
        self._close("incomplete")
        told = _Error(
            "rate_limit_exceeded" if isinstance(error, RetryLater) else "server_error", error.message, error.help
        )
        return self._whole("response.failed", self._response("failed", error=told))

    # The items.

    @property
    def _message_id(self) -> str:
        return "msg_" + self._suffix

    def _open_message(self) -> bytes:
        self._pieces = []
        item = _Message(self._message_id, "in_progress", ())
        return self._event(_Event("response.output_item.added", item=item)) + self._event(
            _Event("response.content_part.added", item_id=item.id, content_index=0, part=_Text("", ()))
        )

    def _close_message(self, status: str) -> bytes:
        if self._pieces is None:
            return b""
        whole = _Text("".join(self._pieces), self._scores)
        item = _Message(self._message_id, status, (whole,))
        events = [
            _Event(
                "response.output_text.done",
                item_id=item.id,
                content_index=0,
                text=whole.text,
                logprobs=whole.logprobs,
            ),
            _Event("response.content_part.done", item_id=item.id, content_index=0, part=whole),
            _Event("response.output_item.done", item=item),
        ]
        rendered = b"".join([self._event(event) for event in events])
        self._pieces = None
        self._items.append(item)
        return rendered

    def _open_call(self, delta: CallDelta) -> bytes:
        self._arguments = []
        self._call = _Call(f"fc_{self._suffix}_{delta.index}", delta.id, delta.name, "", "in_progress")
        return self._event(_Event("response.output_item.added", item=self._call))

    def _close_call(self, status: str) -> bytes:
        if self._call is None:
            return b""
        item = msgspec.structs.replace(self._call, arguments="".join(self._arguments), status=status)
        events = [
            _Event("response.function_call_arguments.done", item_id=item.id, name=item.name, arguments=item.arguments),
            _Event("response.output_item.done", item=item),
        ]
        rendered = b"".join([self._event(event) for event in events])
        self._call = None
        self._items.append(item)
        return rendered

    def _close(self, status: str) -> bytes:
        """End the item that is open; an answer of nothing at all is an empty message."""
        opened = b"" if self._items or self._pieces is not None or self._call else self._open_message()
        return opened + self._close_message(status) + self._close_call(status)

    # The bytes.

    def _event(self, event: _Event) -> bytes:
        self._number += 1
        event.sequence_number = self._number
        event.output_index = len(self._items)
        return b"event: %b\ndata: %b\n\n" % (event.type.encode("ascii"), _encode(event))

    def _whole(self, name: str, response: bytes) -> bytes:
        self._number += 1
        return b'event: %b\ndata: {"type":"%b","sequence_number":%d,"response":%b}\n\n' % (
            name.encode("ascii"),
            name.encode("ascii"),
            self._number,
            response,
        )

    def _done(self, status: str, usage: Usage, account: Account) -> bytes:
        incomplete = _Incomplete("max_output_tokens") if status == "incomplete" else None
        counts = _Usage(
            usage.prompt_tokens,
            _InputDetails(usage.cached_tokens),
            usage.completion_tokens,
            _OutputDetails(),
            usage.prompt_tokens + usage.completion_tokens,
        )
        return self._response(status, usage=counts, incomplete=incomplete, account=account)

    def _response(
        self,
        status: str,
        *,
        usage: _Usage | None = None,
        incomplete: _Incomplete | None = None,
        error: _Error | None = None,
        account: Account | None = None,
    ) -> bytes:
        return b'%b,"status":"%b","error":%b,"incomplete_details":%b,"output":%b,"usage":%b%b}' % (
            self._head,
            status.encode("ascii"),
            _encode(error),
            _encode(incomplete),
            _encode(self._items),
            _encode(usage),
            b"" if account is None else b',"zerolayer":' + _encode(account),
        )

    def _entries(self, logprobs: Sequence[TokenLogprob]) -> list[msgspec.Raw]:
        if self._token_bytes is None or not logprobs:
            return []
        return _entries.decode(self._logprobs.render(logprobs, self._token_bytes)).content


def _status(reason: FinishReason) -> str:
    return "incomplete" if reason is FinishReason.LENGTH else "completed"


class _InputTokens(msgspec.Struct):
    input_tokens: int
    object: str = "response.input_tokens"


def input_tokens_body(input_tokens: int) -> bytes:
    """``POST /v1/responses/input_tokens``."""
    return _encode(_InputTokens(input_tokens))
