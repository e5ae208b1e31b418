"""JSON schemas from strangers: looked through and tidied before they are compiled, so that every cost is bounded.

Source: https://json-schema.org/draft/2020-12/json-schema-core and -validation, and draft 7 where it differs. What an
answer can be held to is the compiler's to say (``grammar``); here are the limits that it does not have, and what would
make it refuse what the standard takes for a mere remark. ``json_schema_keywords`` says in its words what it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeGuard

import msgspec

MAX_DEPTH: Final = 64  # of schemas in schemas, and of values in them
MAX_NODES: Final = 8_192  # objects, lists, texts and numbers together
MAX_PROPERTIES: Final = 512  # of one object: what follows an optional property grows with the square of their number
MAX_PATTERN: Final = 512  # characters of a regular expression
MAX_REMAINDERS: Final = 10_000  # of all divisions together: a state of the compiler's each, which it has no limit for

# Of all other formats the standard says that they are remarks.
FORMATS: Final = frozenset(
    "date-time time date duration email hostname ipv4 ipv6 uuid uri".split()  # noqa: SIM905 - a list is no easier to read
)
ANNOTATIONS: Final = frozenset({"$schema", "$id", "id", "$defs", "definitions", "$vocabulary", "discriminator",
                                "readOnly", "writeOnly", "deprecated", "nullable"})  # fmt: skip
"""Members that hold no value to anything, but say something about the schema itself."""
_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMAS: Final = frozenset({
    "items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_COUNTS: Final = frozenset({
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
})  # fmt: skip
_REMARKS: Final = frozenset({
    "default", "examples", "example", "title", "description", "$comment", "x-guidance", "contentEncoding",
    "contentMediaType", "contentSchema",
})  # fmt: skip

Schema = dict[str, Any] | bool


class SchemaRefused(Exception):
    """The schema is malformed or beyond a limit; the text says which and holds nothing of the schema."""


def read_schema(text: bytes) -> dict[str, Any]:
    """The schema in the JSON ``text`` without remarks; the schema ``true`` as ``{}``. Raises SchemaRefused."""
    try:
        given = msgspec.json.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        raise SchemaRefused("it is not valid JSON, or nested too deeply") from None
    schema = _Reader(given).schema(given, 0)
    if isinstance(schema, bool):
        if not schema:
            raise SchemaRefused("it allows nothing")
        return {}
    return schema


class _Reader:
    """One pass over one schema, which counts what it meets."""

    def __init__(self, root: object) -> None:
        identity = root.get("$id", root.get("id")) if isinstance(root, dict) else None
        self._base = identity.removesuffix("#") if isinstance(identity, str) else ""
        self._nodes = 0
        self._common = 1  # multiple of all divisors
        self._remainders = 0

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
        if kept.get("format", "date") not in FORMATS:
            kept.pop("format")
        _modernise(kept)
        return kept

    def _keyword(self, keyword: str, value: object, depth: int) -> object:
        _check(keyword, value)
        if keyword in _MAPS and isinstance(value, dict):
            if len(value) > MAX_PROPERTIES:
                raise SchemaRefused(f"'{keyword}' of one object has more than {MAX_PROPERTIES} entries")
            if keyword == "patternProperties":
                for pattern in value:
                    _check_pattern(pattern)
            return {name: self.schema(inner, depth + 1) for name, inner in value.items()}
        if isinstance(value, list) and (keyword in _LISTS or keyword == "items"):
            return [self.schema(inner, depth + 1) for inner in value]
        if keyword == "dependencies" and isinstance(value, dict):
            return {name: self._dependency(inner, depth + 1) for name, inner in value.items()}
        if keyword in _SCHEMAS:
            return self.schema(value, depth)
        if keyword == "$ref":
            return self._reference(value)
        if keyword == "pattern" and isinstance(value, str):
            _check_pattern(value)
        if keyword == "multipleOf":
            self._divide(value)
        return self._value(value, depth)

    def _divide(self, value: object) -> None:
        """Each remainder of a division is a state, and of two divisions each pair; factors of ten cost nothing."""
        divisor = _odd_part(value)
        self._common = math.lcm(self._common, divisor)
        self._remainders += divisor
        if max(self._common, self._remainders) > MAX_REMAINDERS:
            raise SchemaRefused(
                f"its values of 'multipleOf' have more than {MAX_REMAINDERS} remainders; use fewer, or rounder ones"
            )

    def _dependency(self, value: object, depth: int) -> object:
        if isinstance(value, list):
            _check("required", value)
            return self._value(value, depth)
        return self.schema(value, depth)

    def _reference(self, value: object) -> str:
        if isinstance(value, str):
            inside = value.removeprefix(self._base)
            if inside.startswith("#"):
                return inside
        raise SchemaRefused("'$ref' must point into the schema itself (#/...)")

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


def _modernise(schema: dict[str, Any]) -> None:
    """Says what older drafts say in the words of 2020-12."""
    further = schema.pop("additionalItems", None)  # without a list of items it has no meaning
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if further is not None:
            schema["items"] = further
    for strict, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(strict), bool):
            excluded = schema.pop(strict)
            if excluded and bound in schema:
                schema[strict] = schema.pop(bound)
    for keyword in _COUNTS & schema.keys():
        schema[keyword] = int(schema[keyword])


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise SchemaRefused(f"a pattern in it has more than {MAX_PATTERN} characters")


def _check(keyword: str, value: object) -> None:
    """Whether the value of a keyword is of the keyword's type."""
    wanted = _SHAPES.get(keyword)
    if wanted is not None and not wanted(value):
        raise SchemaRefused(f"the value of '{keyword}' in it is none that this keyword can have")


def _is_count(value: object) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)  # 2.0 too, as the standard has it


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bound(value: object) -> bool:
    return isinstance(value, int | float)  # true and false as well: drafts before 6


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_type(value: object) -> bool:
    named = value if isinstance(value, list) else [value]
    return bool(named) and all(isinstance(name, str) and name in _TYPES for name in named)


def _is_divisor(value: object) -> bool:
    return _is_number(value) and 0 < value < math.inf


def _odd_part(value: object) -> int:
    """Of the digits of a positive number, without the factors that any power of ten has."""
    digits = int("".join(map(str, Decimal(str(value)).as_tuple().digits)))
    for factor in (2, 5):
        while digits % factor == 0:
            digits //= factor
    return digits


def _is_dependencies(value: object) -> bool:
    return isinstance(value, dict) and all(_is_texts(names) for names in value.values())


_SHAPES: Final[dict[str, Callable[[object], bool]]] = {
    **dict.fromkeys(_MAPS | {"dependencies"}, _is_object),
    **dict.fromkeys(_LISTS | {"enum"}, _is_list),
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _is_bound),
    **dict.fromkeys(("pattern", "format"), _is_text),
    "uniqueItems": _is_flag,
    "required": _is_texts,
    "type": _is_type,
    "multipleOf": _is_divisor,
    "dependentRequired": _is_dependencies,
}  # fmt: skip
