"""Targets of what decodes the bodies of requests, in every dialect."""

from __future__ import annotations

import msgspec

from zerolayer.errors import ZerolayerError
from zerolayer.wire.anthropic import decode_count, decode_messages
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.openai import decode_chat, decode_completion
from zerolayer.wire.openai_general import decode_any_chat, decode_any_completion
from zerolayer.wire.protobuf_request import RequestDecoder
from zerolayer.wire.responses import decode_response

_LIMITS = BodyLimits(body_bytes=65_536)
_TAIL = b"\x4a\x01m"  # model "m": enough to make a prompt a request


def openai(data: bytes) -> None:
    """A request or one refusal, which holds no part of the body; the same by the short way and by the long one."""
    for decode, decode_any in ((decode_chat, decode_any_chat), (decode_completion, decode_any_completion)):
        outcomes = []
        for way in (decode, decode_any):
            try:
                outcomes.append(way(data, _LIMITS))
            except ZerolayerError as error:
                assert error.status in (400, 413)
                outcomes.append((type(error), error.message, error.param, error.limit))
        assert outcomes[0] == outcomes[1]


def anthropic(data: bytes) -> None:
    """A request or one refusal; a call that can be decoded can be counted, and has the same prompt."""
    for decode in (decode_messages, decode_count):
        try:
            request = decode(data, _LIMITS)
        except ZerolayerError as error:
            assert error.status in (400, 413)
        else:
            counted = decode_count(data, _LIMITS)
            assert (counted.messages, counted.prefill, counted.tools) == (
                request.messages,
                request.prefill,
                request.tools,
            )


def responses(data: bytes) -> None:
    """A request or one refusal; what every response object repeats of it is JSON."""
    try:
        request = decode_response(data, _LIMITS)
    except ZerolayerError as error:
        assert error.status in (400, 413)
    else:
        assert isinstance(msgspec.json.decode(b"{%b}" % request.told), dict)


def protobuf(data: bytes) -> None:
    """A request or one refusal; a remembered tail changes nothing."""
    decoder = RequestDecoder(_LIMITS, 16)
    for body in (data, data + _TAIL):
        outcomes: list[object] = []
        for _ in range(2):
            try:
                outcomes.append(decoder.decode(body))
            except ZerolayerError as error:
                outcomes.append(error.message)
        assert outcomes[0] == outcomes[1]
