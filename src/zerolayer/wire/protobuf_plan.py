"""What most calls of one program have in common: fields 9 and up of ``zerolayer.v1.GenerateRequest``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from zerolayer.errors import InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.protobuf import BYTES, FIXED32, VARINT, Fields
from zerolayer.wire.schema import OutputFormat, Sampling
from zerolayer.wire.tools import check_output

SCALE: Final = 1_000_000
NAME_BYTES: Final = 256
LONGEST_MS: Final = 86_400_000

_INT32_MAX: Final = 2**31 - 1
FIRST_TAG: Final = 9 << 3
_MODEL: Final = 9 << 3 | BYTES
_SYSTEM_NAME: Final = 10 << 3 | BYTES
_PROGRAM: Final = 11 << 3 | BYTES
_MAX_TOKENS: Final = 12 << 3 | VARINT
_TEMPERATURE: Final = 13 << 3 | FIXED32
_TOP_P: Final = 14 << 3 | FIXED32
_STREAM: Final = 15 << 3 | VARINT
_TOP_K: Final = 16 << 3 | VARINT
_MIN_P: Final = 17 << 3 | FIXED32
_REPETITION: Final = 18 << 3 | FIXED32
_PRESENCE: Final = 19 << 3 | FIXED32
_FREQUENCY: Final = 20 << 3 | FIXED32
_TOP_LOGPROBS: Final = 21 << 3 | VARINT
_STOP: Final = 22 << 3 | BYTES
_IGNORE_EOS: Final = 23 << 3 | VARINT
_DEADLINE: Final = 24 << 3 | VARINT
_MAX_AGE: Final = 25 << 3 | VARINT
_OUTPUT_SCHEMA: Final = 26 << 3 | BYTES

REPEATED: Final = frozenset({_STOP})
_FIXED_BY_PROGRAM: Final = (
    (_TEMPERATURE, "temperature"),
    (_TOP_P, "top_p"),
    (_TOP_K, "top_k"),
    (_REPETITION, "repetition_penalty"),
)


class Plan(msgspec.Struct, frozen=True):
    """What a tail says."""

    model: str
    system: str | None  # the text that system_name stands for
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    ignore_eos: bool
    deadline_ms: int | None
    max_age_ms: int | None
    output: OutputFormat | None = None


def read_plan(fields: Fields, limits: BodyLimits, systems: Mapping[str, str], programs: Mapping[str, Sampling]) -> Plan:
    """Check every limit. ``systems`` and ``programs`` are the contract's, by name. Raises InvalidRequest."""
    model = _name(fields, _MODEL, "model")
    if not model:
        raise InvalidRequest("'model' is missing; GET /v1/models lists the names.", param="model")
    system_name = _name(fields, _SYSTEM_NAME, "system_name")
    if system_name and system_name not in systems:
        raise InvalidRequest("'system_name' is no constant of this service; send system.", param="system_name")
    return Plan(
        model=model,
        system=systems[system_name] if system_name else None,
        sampling=_sampling(fields, limits, programs),
        max_tokens=_max_tokens(cast(int, fields.get(_MAX_TOKENS, 0)), limits),
        stop=_stop(cast("list[bytes]", fields.get(_STOP, [])), limits),
        stream=bool(fields.get(_STREAM)),
        ignore_eos=bool(fields.get(_IGNORE_EOS)),
        deadline_ms=_within(fields, _DEADLINE, "deadline_ms", LONGEST_MS) or None,
        max_age_ms=_within(fields, _MAX_AGE, "max_age_ms", LONGEST_MS) or None,
        output=_output(cast(bytes, fields.get(_OUTPUT_SCHEMA, b"")), limits),
    )


def _output(schema: bytes, limits: BodyLimits) -> OutputFormat | None:
    return check_output(OutputFormat(schema), limits, "output_schema") if schema else None


def _name(fields: Fields, tag: int, param: str) -> str:
    raw = cast(bytes, fields.get(tag, b""))
    if len(raw) > NAME_BYTES:
        raise InvalidRequest(f"'{param}' must have at most {NAME_BYTES} bytes.", param=param)
    return decode_text(raw, param)


def _sampling(fields: Fields, limits: BodyLimits, programs: Mapping[str, Sampling]) -> Sampling:
    prepared = Sampling()
    program = _name(fields, _PROGRAM, "program")
    if program:
        if program not in programs:
            raise InvalidRequest("'program' is no program of this service; send the parameters.", param="program")
        prepared = programs[program]
        for tag, name in _FIXED_BY_PROGRAM:
            if tag in fields:
                raise InvalidRequest(f"'{name}' is fixed by the program; leave one of them out.", param=name)
    top_p = _within(fields, _TOP_P, "top_p", SCALE, low=1) if _TOP_P in fields else round(prepared.top_p * SCALE)
    top_logprobs = None
    if _TOP_LOGPROBS in fields:
        top_logprobs = _within(fields, _TOP_LOGPROBS, "top_logprobs", limits.top_logprobs, limit="top_logprobs")
    return Sampling(
        temperature=prepared.temperature if program else _temperature(fields, limits),
        top_p=top_p / SCALE,
        top_k=_within(fields, _TOP_K, "top_k", _INT32_MAX) or prepared.top_k,
        min_p=_within(fields, _MIN_P, "min_p", SCALE) / SCALE,
        repetition_penalty=_within(fields, _REPETITION, "repetition_penalty", 10 * SCALE) / SCALE
        or prepared.repetition_penalty,
        presence_penalty=_signed(fields, _PRESENCE, "presence_penalty"),
        frequency_penalty=_signed(fields, _FREQUENCY, "frequency_penalty"),
        top_logprobs=top_logprobs,
    )


def _within(fields: Fields, tag: int, param: str, high: int, low: int = 0, *, limit: str = "") -> int:
    value = cast(int, fields.get(tag, 0))
    if not low <= value <= high:
        raise InvalidRequest(f"'{param}' must be between {low} and {high}.", param=param, limit=limit)
    return value


def _signed(fields: Fields, tag: int, param: str) -> float:
    value = cast(int, fields.get(tag, 0))
    value -= value >> 31 << 32
    if not -2 * SCALE <= value <= 2 * SCALE:
        raise InvalidRequest(f"'{param}' must be between {-2 * SCALE} and {2 * SCALE}.", param=param)
    return value / SCALE


def _temperature(fields: Fields, limits: BodyLimits) -> float:
    low, high = limits.temperature
    if _TEMPERATURE not in fields:
        return min(max(1.0, low), high)
    given = cast(int, fields[_TEMPERATURE]) / SCALE
    if limits.outside == "refuse" and not low <= given <= high:
        raise InvalidRequest(
            f"'temperature' must be between {low * SCALE:.0f} and {high * SCALE:.0f}.",
            param="temperature",
            limit="temperature",
        )
    return limits.moved("temperature", given, low, high)


def _max_tokens(given: int, limits: BodyLimits) -> int | None:
    if limits.outside == "refuse" and given > limits.max_tokens:
        raise InvalidRequest(
            f"'max_tokens' must be between 1 and {limits.max_tokens}.", param="max_tokens", limit="max_tokens"
        )
    return limits.moved("max_tokens", given, 0, limits.max_tokens) or None


def _stop(given: list[bytes], limits: BodyLimits) -> tuple[str, ...]:
    if len(given) > limits.stop:
        raise InvalidRequest(f"'stop' must have at most {limits.stop} strings.", param="stop", limit="stop")
    stops = tuple([decode_text(raw, "stop") for raw in given])
    for text in stops:
        if not 1 <= len(text) <= limits.stop_chars:
            raise InvalidRequest(f"Each string of 'stop' must have 1 to {limits.stop_chars} characters.", param="stop")
    return stops


def decode_text(raw: bytes, param: str) -> str:
    """UTF-8. Raises InvalidRequest that blames ``param``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"'{param}' must be UTF-8.", param=param) from None
