"""Strict JSON bodies, decoded once into typed structs (RFC 8259).

msgspec refuses most of what is wrong. Added here: invalid UTF-8 in members that are skipped, and error texts made of
our own words, so that no part of a body ever appears in a message. Of members that are given twice the last one counts,
as in every JSON library: to find them would cost five times what the decoding costs.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from zerolayer.errors import BodyTooLarge, InvalidRequest

T = TypeVar("T")

_MISMATCH = re.compile(r"Expected `([a-z| ]+)`, got `([a-z]+)`")
_PLACE = re.compile(r" - at `\$\.?([a-z_.\[\]\d]+)`$")  # names of our structs; keys of mappings appear as [...]
_BYTE = re.compile(r"\(byte (\d+)\)$")
_KINDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def decode_strict(decoder: msgspec.json.Decoder[T], body: bytes, body_bytes: int) -> T:
    """Decode ``body``, at most ``body_bytes`` long. Unknown members are ignored, of repeated ones the last counts.

    Raises BodyTooLarge, and InvalidRequest with ``param`` as "messages[0].content" where one member is to blame.
    """
    if len(body) > body_bytes:
        raise BodyTooLarge(f"The request body is larger than {body_bytes} bytes; send a shorter one.")
    if not body:
        raise InvalidRequest("The request body is empty; a JSON object is expected.")
    try:
        value = decoder.decode(body)
        if not body.isascii():
            body.decode("utf-8")  # msgspec does not look into members that it skips
    except msgspec.ValidationError as error:
        raise _type_error(str(error)) from None
    except msgspec.DecodeError as error:
        raise _syntax_error(str(error)) from None
    except RecursionError:
        raise InvalidRequest("The JSON of the request body is nested too deeply.") from None
    except ValueError:  # what is left: UnicodeDecodeError
        raise InvalidRequest("The request body is not valid JSON in UTF-8.") from None
    return value


def _type_error(text: str) -> InvalidRequest:
    """Translate msgspec's text: places are names of our structs and indexes, types are words of a closed list."""
    place = _PLACE.search(text)
    param = place[1] if place else None
    subject = f"'{param}'" if param else "The request body"
    mismatch = _MISMATCH.match(text)
    if mismatch is None:
        return InvalidRequest(f"{subject} is out of range.", param=param)
    wanted = [_KINDS[word] for word in mismatch[1].split(" | ") if word in _KINDS and word != "null"]
    got = _KINDS.get(mismatch[2], "something else")
    return InvalidRequest(f"{subject} must be {' or '.join(wanted)}, not {got}.", param=param)


def _syntax_error(text: str) -> InvalidRequest:
    byte = _BYTE.search(text)
    where = f" It is malformed at byte {byte[1]}." if byte else ""
    return InvalidRequest(f"The request body is not valid JSON in UTF-8.{where}")
