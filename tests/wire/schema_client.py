"""The client's side of the schema: requests to bytes, replies from bytes (``proto/zerolayer/v1/inference.proto``)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final

from zerolayer.wire.protobuf import (
    bytes_field,
    fixed32_field,
    fixed64_field,
    message_field,
    varint_field,
)
from zerolayer.wire.protobuf_plan import SCALE
from zerolayer.wire.protobuf_request import ROLES
from zerolayer.wire.schema import Message, Request

_ROLE_NUMBERS: Final = {name: number for number, name in enumerate(ROLES, 1)}


def encode_request(request: Request) -> bytes:
    """The message that decodes to ``request``, for clients. Raises ValueError for what the schema cannot say.

    That is: a text prompt without roles, ``echo``, and parameters that are no multiple of a millionth.
    """
    if (isinstance(request.prompt, str) and request.prompt) or request.echo:
        raise ValueError("the schema has token ids or messages, and no echo")
    sampling = request.sampling
    parts = [bytes_field(1, _packed_ids(request.prompt))] if not isinstance(request.prompt, str) else []
    parts += [message_field(2, _encode_message(message)) for message in request.messages]
    if request.event_time_ms is not None:
        parts.append(fixed64_field(4, request.event_time_ms))
    if request.ingest_time_ms is not None:
        parts.append(fixed64_field(5, request.ingest_time_ms))
    parts += [bytes_field(6, request.ticket.encode()), bytes_field(7, request.session.encode())]
    if sampling.seed is not None:
        parts.append(fixed64_field(8, sampling.seed))
    parts += [bytes_field(9, request.model.encode()), varint_field(12, request.max_tokens or 0)]
    parts += [fixed32_field(13, _scaled(sampling.temperature)), fixed32_field(14, _scaled(sampling.top_p))]
    parts += [varint_field(15, request.stream), varint_field(16, sampling.top_k)]
    for number, value, off in (
        (17, sampling.min_p, 0.0),
        (18, sampling.repetition_penalty, 1.0),
        (19, sampling.presence_penalty, 0.0),
        (20, sampling.frequency_penalty, 0.0),
    ):
        if value != off:
            parts.append(fixed32_field(number, _scaled(value)))
    if sampling.top_logprobs is not None:
        parts.append(varint_field(21, sampling.top_logprobs, keep_zero=True))
    parts += [bytes_field(22, text.encode()) for text in request.stop]
    parts += [varint_field(23, request.ignore_eos), varint_field(24, request.deadline_ms or 0)]
    parts.append(varint_field(25, request.max_age_ms or 0))
    return b"".join(parts)


def _packed_ids(ids: Sequence[int]) -> bytes:
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _encode_message(message: Message) -> bytes:
    return varint_field(1, _ROLE_NUMBERS[message.role]) + bytes_field(2, message.content.encode())


def _scaled(value: float) -> int:
    scaled = round(value * SCALE)
    if scaled / SCALE != value:
        raise ValueError("a parameter must be a multiple of 0.000001")
    return scaled
