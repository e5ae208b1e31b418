"""``zerolayer.v1.GenerateRequest`` (``proto/zerolayer/v1/inference.proto``) to ``Request``.

Fields 1 to 8 differ from call to call; what follows them, the *tail*, is the same bytes in most calls of one program.
So the tail is decoded and checked once, remembered, and looked up from then on; a request costs its prompt and one
look-up, natively (``native/wire_planned.hpp``). Field order is not part of the format: fields of the head that come
late are found too, only not as fast.

Measured against ``protobuf``'s C implementation with each field read once: a third of its time, without the dependency.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from zerolayer.errors import BodyTooLarge, InvalidRequest
from zerolayer.wire._native import PlannedBodies
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.protobuf import BYTES, FIXED64, VARINT, Fields, Malformed, read_fields
from zerolayer.wire.protobuf_plan import FIRST_TAG, REPEATED, Plan, decode_text, read_plan
from zerolayer.wire.schema import Message, Request, Route, Sampling

TICKET_CHARACTERS: Final = 64
SESSION_CHARACTERS: Final = 128
LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999

_PLANS: Final = 1024  # tails that are remembered, and how long one may be: half a megabyte at most
_PLAN_BYTES: Final = 512

_TOKEN_IDS: Final = 1 << 3 | BYTES
_MESSAGES: Final = 2 << 3 | BYTES
_SYSTEM: Final = 3 << 3 | BYTES
_EVENT_TIME: Final = 4 << 3 | FIXED64
_INGEST_TIME: Final = 5 << 3 | FIXED64
_TICKET: Final = 6 << 3 | BYTES
_SESSION: Final = 7 << 3 | BYTES
_SEED: Final = 8 << 3 | FIXED64

_REPEATED: Final = frozenset({_MESSAGES}) | REPEATED
_HEAD: Final = frozenset({_TOKEN_IDS, _MESSAGES, _SYSTEM, _EVENT_TIME, _INGEST_TIME, _TICKET, _SESSION, _SEED})
_SWAPPED: Final = sys.byteorder == "big"
_NONE: Final[frozenset[int]] = frozenset()
_ROLE: Final = 1 << 3 | VARINT
_CONTENT: Final = 2 << 3 | BYTES
ROLES: Final = ("system", "user", "assistant")
"""Of the numbers 1 to 3."""
_planned: Final = PlannedBodies(Plan, array, Message, Request, Route.COMPLETIONS, Route.CHAT, ROLES).decode
"""Nearly every request: prompt, tail that is remembered, and nothing else; what is none of these is for ``_any``."""


class RequestDecoder:
    """Decodes for one service. ``systems``: constant texts by name; ``programs``: prepared parameters by name."""

    def __init__(
        self,
        limits: BodyLimits,
        max_messages: int,
        systems: Mapping[str, str] | None = None,
        programs: Mapping[str, Sampling] | None = None,
    ) -> None:
        self._limits = limits
        self._max_messages = max_messages
        self._systems = systems or {}
        self._programs = programs or {}
        self._plans: dict[bytes, Plan] = {}

    def decode(self, body: bytes, _limits: BodyLimits | None = None) -> Request:
        """A request, checked by this decoder's own limits, whatever is given. Raises InvalidRequest, BodyTooLarge."""
        most = self._limits.body_bytes
        return _planned(body, self._plans, most, self._max_messages) or self._any(body)

    def _any(self, body: bytes) -> Request:
        if len(body) > self._limits.body_bytes:
            raise BodyTooLarge(f"The request is larger than {self._limits.body_bytes} bytes; send a shorter one.")
        head: Fields = {}
        try:
            tail = body[read_fields(body, 0, len(body), head, _REPEATED, FIRST_TAG) :]
            return self._request(head, self._plans.get(tail) or self._read_tail(tail, head))
        except Malformed as error:
            raise InvalidRequest(f"The request is no protocol buffers message: {error.reason}.") from None

    def _read_tail(self, tail: bytes, head: Fields) -> Plan:
        fields: Fields = {}
        read_fields(tail, 0, len(tail), fields, _REPEATED)
        late = fields.keys() & _HEAD
        for tag in late:
            earlier, value = head.get(tag), fields.pop(tag)
            head[tag] = [*earlier, *value] if isinstance(earlier, list) and isinstance(value, list) else value
        plan = read_plan(fields, self._limits, self._systems, self._programs)
        if not late and len(tail) <= _PLAN_BYTES:
            if len(self._plans) >= _PLANS:
                self._plans.clear()  # whoever sends a new tail each time must not make the server grow
            self._plans[tail] = plan
        return plan

    def _request(self, head: Fields, plan: Plan) -> Request:
        ids = head.pop(_TOKEN_IDS, b"")
        messages = () if ids else self._messages(head, plan)
        if ids and (_MESSAGES in head or head.get(_SYSTEM) or plan.system is not None):
            raise InvalidRequest("'token_ids' is the whole prompt; leave messages and system out.", param="token_ids")
        sampling = plan.sampling
        if _SEED in head:
            sampling = msgspec.structs.replace(sampling, seed=head[_SEED])
        return Request(
            route=Route.COMPLETIONS if ids else Route.CHAT,
            model=plan.model,
            messages=messages,
            prompt=_token_ids(cast(bytes, ids)) if ids else "",
            sampling=sampling,
            max_tokens=plan.max_tokens,
            stop=plan.stop,
            stream=plan.stream,
            ignore_eos=plan.ignore_eos,
            deadline_ms=plan.deadline_ms,
            max_age_ms=plan.max_age_ms,
            output=plan.output,
            event_time_ms=_unix_ms(head, _EVENT_TIME, "event_time_ms"),
            ingest_time_ms=_unix_ms(head, _INGEST_TIME, "ingest_time_ms"),
            ticket=_visible(head, _TICKET, "ticket", TICKET_CHARACTERS),
            session=_visible(head, _SESSION, "session", SESSION_CHARACTERS),
        )

    def _messages(self, head: Fields, plan: Plan) -> tuple[Message, ...]:
        given = cast("list[bytes]", head.get(_MESSAGES, []))
        if len(given) > self._max_messages:
            raise InvalidRequest(f"'messages' must have at most {self._max_messages} messages.", param="messages")
        messages = [_message(raw) for raw in given]
        system = plan.system
        if head.get(_SYSTEM):
            if system is not None:
                raise InvalidRequest("'system' and 'system_name' mean the same; send one.", param="system_name")
            system = decode_text(cast(bytes, head[_SYSTEM]), "system")
        if system is not None:
            messages.insert(0, Message("system", system))
        if not messages:
            raise InvalidRequest("There is no prompt; send token_ids or messages.", param="messages")
        return tuple(messages)


def _message(raw: bytes) -> Message:
    fields: Fields = {}
    read_fields(raw, 0, len(raw), fields, _NONE)
    role = cast(int, fields.get(_ROLE, 0))
    if not 0 < role <= len(ROLES):
        raise InvalidRequest("The role of a message must be system, user or assistant.", param="messages.role")
    return Message(ROLES[role - 1], decode_text(cast(bytes, fields.get(_CONTENT, b"")), "messages.content"))


def _token_ids(raw: bytes) -> array[int]:
    if len(raw) % 4:
        raise InvalidRequest("'token_ids' must be four bytes for each token, little-endian.", param="token_ids")
    ids = array("I", raw)
    if _SWAPPED:
        ids.byteswap()
    return ids


def _unix_ms(fields: Fields, tag: int, param: str) -> int | None:
    value = cast(int, fields.get(tag, 0))
    if value > LATEST_MS:
        raise InvalidRequest(f"'{param}' must be between 1 and {LATEST_MS}.", param=param)
    return value or None


def _visible(fields: Fields, tag: int, param: str, longest: int) -> str:
    raw = cast(bytes, fields.get(tag, b""))
    if len(raw) > longest or not all(0x21 <= byte <= 0x7E for byte in raw):
        raise InvalidRequest(f"'{param}' must be at most {longest} visible ASCII characters.", param=param)
    return raw.decode("ascii")
