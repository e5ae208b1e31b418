"""JSON schemas from strangers: looked through and tidied before they are compiled, so that every cost is bounded.

Source: https://json-schema.org/draft/2020-12/json-schema-core and -validation. What an answer can be held to is the
compiler's to say (``grammar``); here are the limits that it does not have, and what would make it refuse what the
standard takes for a mere remark.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 64  # of schemas in schemas, and of values in them
MAX_NODES: Final = 8_192  # objects, lists, texts and numbers together
MAX_PROPERTIES: Final = 512  # of one object: what follows an optional property grows with the square of their number
MAX_PATTERN: Final = 512  # characters of a regular expression

# Of all other formats the standard says that they are remarks.
FORMATS: Final = frozenset(
    "date-time time date duration email hostname ipv4 ipv6 uuid uri".split()  # noqa: SIM905 - a list is no easier to read
)
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMAS: Final = frozenset({"items", "additionalItems", "additionalProperties"})
_REMARKS: Final = frozenset({"default", "examples", "example", "title", "description", "$comment", "x-guidance"})

Schema = dict[str, Any] | bool


class SchemaRefused(Exception):
    """The schema is malformed or beyond a limit; the text says which and holds nothing of the schema."""


def read_schema(text: bytes) -> dict[str, Any]:
    """The schema in the JSON ``text`` without remarks; the schema ``true`` as ``{}``. Raises SchemaRefused."""
    try:
        given = msgspec.json.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        raise SchemaRefused("it is not valid JSON, or nested too deeply") from None
    schema = _Reader().schema(given, 0)
    if isinstance(schema, bool):
        if not schema:
            raise SchemaRefused("it allows nothing")
        return {}
    return schema


class _Reader:
    """One pass over one schema, which counts what it meets."""

    def __init__(self) -> None:
        self._nodes = 0

    def schema(self, given: object, depth: int) -> Schema:
        """A copy without remarks."""
        self._meet(depth)
        if isinstance(given, bool):
            return given
        if not isinstance(given, dict):
            raise SchemaRefused("a schema in it is neither an object nor true or false")
        kept: dict[str, Any] = {}
        for keyword, value in given.items():
            if keyword not in _REMARKS:
                kept[keyword] = self._keyword(keyword, value, depth + 1)
        given_format = kept.get("format")
        if not (isinstance(given_format, str) and given_format in FORMATS):
            kept.pop("format", None)
        return kept

    def _keyword(self, keyword: str, value: object, depth: int) -> object:
        if keyword in _MAPS and isinstance(value, dict):
            if len(value) > MAX_PROPERTIES:
                raise SchemaRefused(f"'{keyword}' of one object has more than {MAX_PROPERTIES} entries")
            if keyword == "patternProperties":
                for pattern in value:
                    _check_pattern(pattern)
            return {name: self.schema(inner, depth + 1) for name, inner in value.items()}
        if keyword in _LISTS and isinstance(value, list):
            return [self.schema(inner, depth + 1) for inner in value]
        if keyword in _SCHEMAS:
            return self.schema(value, depth)
        if keyword == "$ref" and not (isinstance(value, str) and value.startswith("#")):
            raise SchemaRefused("'$ref' must point into the schema itself (#/...)")
        if keyword == "pattern" and isinstance(value, str):
            _check_pattern(value)
        return self._value(value, depth)

    def _value(self, value: object, depth: int) -> object:
        self._meet(depth)
        if isinstance(value, list):
            for inner in value:
                self._value(inner, depth + 1)
        elif isinstance(value, dict):
            for inner in value.values():
                self._value(inner, depth + 1)
        return value

    def _meet(self, depth: int) -> None:
        self._nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaRefused(f"it is nested more than {MAX_DEPTH} deep")
        if self._nodes > MAX_NODES:
            raise SchemaRefused(f"it has more than {MAX_NODES} parts")


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise SchemaRefused(f"a pattern in it has more than {MAX_PATTERN} characters")
