"""The bytes of the ledger, version 1 (docs/ledger.md has the table). Little-endian, every record of the same size.

A record is ``CONTENT_BYTES`` of content and the SHA-256 of the hash before it and that content. The first record of a
segment follows on the segment's head, whose own hash covers the last hash of the segment before it.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec

VERSION: Final = 1
MAGIC: Final = b"ZLLEDGER"
CONTENT_BYTES: Final = 416
HASH_BYTES: Final = 32
RECORD_BYTES: Final = CONTENT_BYTES + HASH_BYTES
NO_HASH: Final = bytes(HASH_BYTES)
STAGES: Final = 9
SOURCES: Final = 8  # places in the prompt that a match names at most
MODEL_BYTES: Final = 64
TEXT_BYTES: Final = 128

# What all records begin with: kind, a code, a short number, flags, sequence, Unix microseconds, key id, tenant.
_COMMON = "<BBHIQQ16s32s"
COMMON: Final = Struct(_COMMON)
_REQUEST = Struct(_COMMON + "64s128s24s32s4IQ2I9I28x")
_METER = Struct(_COMMON + "64sQQI260x")
_MATCH = Struct(_COMMON + "128s128sfIII" + "HHI" * SOURCES + "8x")
_NOTE = Struct(_COMMON + "Q128s208x")
_HEAD = Struct("<8sHHIQQ32s16s64s64s208x")

_U32: Final = (1 << 32) - 1
_US: Final = 1000  # nanoseconds


class Kind(IntEnum):
    """What a record is about."""

    REQUEST = 1
    METER = 2  # compute that no request's record holds
    MATCH = 3  # text that an audit rule keeps
    NOTE = 4  # of the ledger itself


class Outcome(IntEnum):
    """How a request ended."""

    FINISHED = 1  # the reply is complete
    REFUSED = 2  # it never ran
    ABORTED = 3  # the client went away
    FAILED = 4  # the server ended it early


class Flag(IntFlag):
    """More about a request."""

    STREAMED = 1
    ANSWER_CACHED = 2  # the answer was kept from an equal request: nothing was computed
    UNNAMED = 4  # audit level "off": request id, route, times and code are blank


class NoteKind(IntEnum):
    """What happened to the ledger."""

    OPENED = 1  # a server began to write; the text is its version
    CLOSED = 2
    REPAIRED = 3  # bytes behind the last whole record were taken out; the number says how many
    GAP = 4  # records could not be written and are lost; the number says how many
    JOINED = 5  # records of the annex that the text names follow, but for so many; without a name they break off


class Entry(msgspec.Struct):
    """A request. ``core_ns`` are nanoseconds of one core; times in microseconds from the first byte read.

    ``stages_us`` are the nine stages without the last write, which is not over when the record is made. ``max_tokens``
    and ``deadline_ms`` are what was applied; all are 0 where the request never came so far.
    """

    tenant: bytes
    key_id: bytes = b""
    model: bytes = b""
    request_id: bytes = b""
    route: bytes = b""
    code: bytes = b""  # the finish reason, or the error's code
    outcome: int = Outcome.FINISHED
    status: int = 0
    flags: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    max_tokens: int = 0
    core_ns: int = 0
    first_token_us: int = 0
    deadline_ms: int = 0
    stages_us: tuple[int, ...] = (0,) * STAGES
    sequence: int = 0
    ended_us: int = 0


class Meter(msgspec.Struct, frozen=True):
    """Compute of ``tenant`` that is in no request's record, of a span of ``span_us`` wall time on ``cores`` cores.

    ``span_us`` is 0 unless the tenant is ``_idle``: the spans of one server's ``_idle`` records cover its life.
    """

    tenant: bytes
    core_ns: int
    span_us: int = 0
    cores: int = 0
    model: bytes = b""
    sequence: int = 0
    ended_us: int = 0


class Source(msgspec.Struct, frozen=True):
    """A place in the prompt that says the same: a message's number, and characters from its beginning."""

    message: int
    offset: int


class Match(msgspec.Struct, frozen=True):
    """Text of an answer that a rule keeps: of ``tokens`` tokens from number ``token`` on, ``offset`` in characters.

    ``logprob`` is that of the least likely of them; NaN where it is not known. ``places`` counts all ``sources``, of
    which eight at most are named; 0: the text is nowhere in the prompt.
    """

    tenant: bytes
    request_id: bytes
    rule: int
    text: bytes
    logprob: float
    token: int
    tokens: int
    offset: int
    sources: tuple[Source, ...] = ()
    places: int = 0
    key_id: bytes = b""
    sequence: int = 0
    ended_us: int = 0


class Note(msgspec.Struct, frozen=True):
    """Something that happened to the ledger."""

    what: NoteKind
    number: int = 0
    text: bytes = b""
    sequence: int = 0
    ended_us: int = 0


class Head(msgspec.Struct, frozen=True):
    """The beginning of a segment. ``before``: the last hash of the one before it; ``sequence``: of its first record."""

    number: int
    sequence: int
    created_us: int
    before: bytes = NO_HASH
    ledger_id: bytes = bytes(16)
    node: bytes = b""
    server: bytes = b""


Record = Entry | Meter | Match | Note

Told = tuple[int, int, int, bytes, bytes, bytes, str, bytes, str, int, int, int, int, int, int, int, tuple[int, ...]]
"""A request as it is filed: outcome, status, flags, key id, tenant, model, request id, route, code, tokens of the
prompt, of it cached, of the answer, most; core nanoseconds, microseconds to the first token, deadline in milliseconds,
nanoseconds by stage."""


def fit(text: str, size: int) -> bytes:
    """UTF-8 of at most ``size`` bytes, cut between characters."""
    data = text.encode("utf-8", "replace")
    return data if len(data) <= size else data[:size].decode("utf-8", "ignore").encode()


def entry_of(told: Told, sequence: int = 0, ended_us: int = 0) -> Entry:
    """What the compiled writer makes a record of; a number that does not fit is the largest that does."""
    (
        outcome,
        status,
        flags,
        key_id,
        tenant,
        model,
        request_id,
        route,
        code,
        *counts,
        core_ns,
        first_us,
        deadline,
        spent,
    ) = told
    prompt, cached, completion, most = [min(count, _U32) for count in counts]
    stages = tuple([min(nanoseconds // _US, _U32) for nanoseconds in spent])
    return Entry(
        tenant, key_id, model, request_id.encode(), route, code.encode(), outcome, status, flags, prompt, cached,
        completion, most, core_ns, min(first_us, _U32), min(deadline, _U32), stages, sequence, ended_us,
    )  # fmt: skip


def content_of(record: Record, sequence: int, ended_us: int) -> bytes:
    """The content of any record. The server's requests are written by ``_native.Sheet`` instead, to the same bytes."""
    match record:
        case Entry():
            return _REQUEST.pack(
                1, record.outcome, record.status, record.flags, sequence, ended_us,
                record.key_id, record.tenant, record.model, record.request_id, record.route, record.code,
                record.prompt_tokens, record.cached_tokens, record.completion_tokens, record.max_tokens,
                record.core_ns, min(record.first_token_us, _U32), record.deadline_ms,
                *[min(spent, _U32) for spent in record.stages_us],
            )  # fmt: skip
        case Meter():
            return _METER.pack(
                Kind.METER, 0, 0, 0, sequence, ended_us, b"", record.tenant,
                record.model, record.core_ns, record.span_us, record.cores,
            )  # fmt: skip
        case Match():
            named = [(source.message, 0, source.offset) for source in record.sources[:SOURCES]]
            named += [(0, 0, 0)] * (SOURCES - len(named))
            return _MATCH.pack(
                Kind.MATCH, record.rule, min(record.places, 65535), 0, sequence, ended_us,
                record.key_id, record.tenant, record.request_id, record.text,
                record.logprob, record.token, record.tokens, record.offset,
                *[number for source in named for number in source],
            )  # fmt: skip
        case Note():
            return _NOTE.pack(Kind.NOTE, record.what, 0, 0, sequence, ended_us, b"", b"", record.number, record.text)


def head_bytes(head: Head) -> bytes:
    """A whole head with its hash."""
    content = _HEAD.pack(
        MAGIC, VERSION, RECORD_BYTES, head.number, head.sequence, head.created_us,
        head.before, head.ledger_id, head.node, head.server,
    )  # fmt: skip
    return content + sha256(content).digest()


def read_head(data: bytes) -> Head | None:
    """The head of a segment, or None if these bytes are no whole one of this version. ``version_of`` tells why."""
    content, digest = data[:CONTENT_BYTES], data[CONTENT_BYTES:RECORD_BYTES]
    if len(digest) < HASH_BYTES or sha256(content).digest() != digest:
        return None
    magic, version, size, number, sequence, created, before, ledger_id, node, server = _HEAD.unpack(content)
    if magic != MAGIC or version != VERSION or size != RECORD_BYTES:
        return None
    return Head(number, sequence, created, before, ledger_id, _text(node), _text(server))


def version_of(data: bytes) -> int:
    """The version that a segment says it has; 0 if it is none."""
    return int.from_bytes(data[8:10], "little") if data[:8] == MAGIC else 0


def read_record(data: bytes) -> Record | None:
    """The record of ``CONTENT_BYTES`` of content; None for a kind that this version does not know."""
    kind, code, short, flags, sequence, ended_us, key_id, tenant = COMMON.unpack_from(data)
    name = _text(tenant)
    if kind == Kind.REQUEST:
        values = _REQUEST.unpack(data)[8:]
        model, request_id, route, error = [_text(value) for value in values[:4]]
        prompt, cached, completion, most, core_ns, first_us, deadline_ms = values[4:11]
        return Entry(
            name, key_id, model, request_id, route, error, code, short, flags, prompt, cached, completion, most,
            core_ns, first_us, deadline_ms, values[11:], sequence, ended_us,
        )  # fmt: skip
    if kind == Kind.METER:
        model, core_ns, span_us, cores = _METER.unpack(data)[8:]
        return Meter(name, core_ns, span_us, cores, _text(model), sequence, ended_us)
    if kind == Kind.MATCH:
        values = _MATCH.unpack(data)[8:]
        request_id, text, logprob, token, tokens, offset = values[:6]
        named = values[6 : 6 + 3 * min(short, SOURCES)]
        sources = tuple([Source(named[at], named[at + 2]) for at in range(0, len(named), 3)])
        return Match(
            name, _text(request_id), code, _text(text), logprob, token, tokens, offset, sources, short,
            key_id, sequence, ended_us,
        )  # fmt: skip
    if kind == Kind.NOTE and code in list(NoteKind):
        number, text = _NOTE.unpack(data)[8:]
        return Note(NoteKind(code), number, _text(text), sequence, ended_us)
    return None


def in_sequence(content: bytes, sequence: int) -> bytes:
    """The same content as another record of its chain."""
    return content[:8] + sequence.to_bytes(8, "little") + content[16:]


def chained(before: bytes, content: bytes | bytearray) -> bytes:
    """The hash of a record: of the hash before it and its content."""
    return sha256(before + content).digest()


def _text(field: bytes) -> bytes:
    return field.rstrip(b"\0")
