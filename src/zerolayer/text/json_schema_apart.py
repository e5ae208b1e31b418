"""Whether no value can be of two JSON schemas, told from what they say of types, constants, bounds and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolayer.text.json_schema import Schema
from zerolayer.text.json_schema_document import SchemaDocument
from zerolayer.text.json_schema_opposite import TYPES, equal

_DEEPEST: Final = 6
_ALL: Final = frozenset(TYPES)
# Of a kind of values: its lowest and its highest measure.
_MEASURES: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def apart(one: Schema, other: Schema, document: SchemaDocument, depth: int = 0) -> bool:
    """True: no value is allowed by both. False: some may be. Raises SchemaRefused where a reference points nowhere."""
    document.look()
    if isinstance(one, bool) or isinstance(other, bool):
        return one is False or other is False
    if depth > _DEEPEST:
        return False
    for here, there in ((one, other), (other, one)):
        if "$ref" in here and apart(document.resolve(here["$ref"]), there, document, depth + 1):
            return True
        if any(apart(case, there, document, depth + 1) for case in here.get("allOf", ())):
            return True
        for keyword in ("anyOf", "oneOf"):
            if here.get(keyword) and all(apart(case, there, document, depth + 1) for case in here[keyword]):
                return True
    common = types(one) & types(other)
    if not common or _no_constant(one, other):
        return True
    return all(_apart_as(kind, one, other, document, depth) for kind in common)


def types(schema: Mapping[str, Any]) -> frozenset[str]:
    """The types that the schema itself allows; whole numbers are numbers."""
    given = schema.get("type", TYPES)
    named = [given] if isinstance(given, str) else given
    allowed = frozenset("number" if name == "integer" else name for name in named)
    values = constants(schema)
    return allowed & (_ALL if values is None else frozenset(map(_type_of, values)))


def constants(schema: Mapping[str, Any]) -> list[Any] | None:
    """The only values that the schema allows; None: not so few."""
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "number")


def _no_constant(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    first, second = constants(one), constants(other)
    if first is None or second is None:
        return False
    return not any(equal(value, rival) for value in first for rival in second)


def _apart_as(
    kind: str, one: Mapping[str, Any], other: Mapping[str, Any], document: SchemaDocument, depth: int
) -> bool:
    """Whether no value of this type is allowed by both."""
    if kind == "number":
        return _beyond(one, other) or _beyond(other, one)
    if kind not in _MEASURES:
        return False
    lowest, highest = _MEASURES[kind]
    for here, there in ((one, other), (other, one)):
        if highest in there and here.get(lowest, 0) > there[highest]:
            return True
        if kind == "object" and any(_forbids(there, name) for name in here.get("required", ())):
            return True
    if kind != "object":
        return False
    both = set(one.get("required", ())) & set(other.get("required", ()))
    return any(apart(_property(one, name), _property(other, name), document, depth + 1) for name in both)


def _beyond(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the numbers of one are all greater than those of the other."""
    for low, high, strict in (
        ("minimum", "maximum", True),
        ("exclusiveMinimum", "maximum", False),
        ("minimum", "exclusiveMaximum", False),
        ("exclusiveMinimum", "exclusiveMaximum", False),
    ):
        if low in one and high in other and (one[low] > other[high] or (one[low] == other[high] and not strict)):
            return True
    return False


def _property(schema: Mapping[str, Any], name: str) -> Schema:
    given: Schema = schema.get("properties", {}).get(name, True)
    return given


def _forbids(schema: Mapping[str, Any], name: str) -> bool:
    if name in schema.get("properties", {}):
        return schema["properties"][name] is False
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")
