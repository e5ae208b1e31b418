"""Two hundred JSON schemas of many kinds, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

WORDS = ("name", "age", "city", "tags", "items", "price", "unit", "kind", "note", "email", "score", "level", "size")
PATTERNS = (
    "^[A-Z]{2}[0-9]{4}$", "^#[0-9a-f]{6}$", "^(red|green|blue)$", "^[a-z]+(-[a-z]+)*$", "^\\d{3}-\\d{4}$",
    "^v\\d+\\.\\d+$", "^[^@ ]{1,8}@[a-z]{1,8}\\.(com|org)$", "^(0|[1-9]\\d?)$",
)  # fmt: skip
FORMATS = ("date", "email", "ipv4", "ipv6", "uuid", "date-time", "time", "hostname")
WRITTEN: tuple[Schema, ...] = (
    {},
    {"type": "object"},
    {"type": "array"},
    {"const": {"a": [1, None, "x"]}},
    {"enum": ["a", 1, None, True, {"b": []}, [2.5]]},
    {"type": ["string", "null"], "maxLength": 5},
    {"type": ["integer", "boolean"]},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}, "maxItems": 2}]},
    {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "boolean"}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
               {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}]},
    {"type": "object", "patternProperties": {"^x_[a-z]$": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
    {"type": "array", "prefixItems": [{"type": "string", "maxLength": 3}, {"type": "integer"}], "items": False},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "integer", "minimum": -5, "maximum": -1},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "additionalProperties": False, "required": ["v"],
     "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "maxItems": 2,
                                                      "items": {"$ref": "#/$defs/tree"}}}}}},
    {"$ref": "#/definitions/a", "definitions": {"a": {"type": "array", "items": {"$ref": "#/definitions/b"}},
                                                "b": {"enum": ["x", "y"]}}},
    {"oneOf": [{"type": "object", "properties": {"k": {"const": "cat"}, "lives": {"type": "integer"}},
                "required": ["k", "lives"], "additionalProperties": False},
               {"type": "object", "properties": {"k": {"const": "dog"}, "good": {"type": "boolean"}},
                "required": ["k", "good"], "additionalProperties": False}]},
    {"type": "object", "properties": {"how": {"enum": ["card", "cash"]}, "number": {"type": "integer"}},
     "required": ["how"], "additionalProperties": False,
     "if": {"properties": {"how": {"const": "card"}}}, "then": {"required": ["number"]}},
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}},
     "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "additionalProperties": False},
    {"type": "string", "maxLength": 4, "not": {"enum": ["", "none", "null"]}},
    {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "uniqueItems": True, "minItems": 2},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "contains": {"minimum": 50},
     "maxItems": 3},
    {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"from": {"type": "boolean"}, "to": {"type": "boolean"}},
     "dependentRequired": {"from": ["to"]}, "minProperties": 1, "additionalProperties": False},
    {"type": "string", "format": "byte", "title": "T", "description": "D", "default": "x", "examples": ["y"]},
)  # fmt: skip


def schemas(count: int = 200) -> list[Schema]:
    """``count`` schemas: those of ``WRITTEN``, then made ones."""
    chance = random.Random(7)
    made = [_value(chance, depth=3) if at % 3 else _object(chance, depth=3) for at in range(count - len(WRITTEN))]
    return [*WRITTEN, *made]


def _value(chance: random.Random, depth: int) -> Schema:
    leaves: list[Callable[[random.Random], Schema]] = [_string, _pattern, _format, _integer, _number, _enum, _flag]
    if depth == 0 or chance.random() < 0.35:
        return chance.choice(leaves)(chance)
    return chance.choice((_object, _object, _array, _any_of))(chance, depth - 1)


def _string(chance: random.Random) -> Schema:
    shortest = chance.randrange(4)
    return {"type": "string", "minLength": shortest, "maxLength": shortest + chance.randrange(12)}


def _pattern(chance: random.Random) -> Schema:
    return {"type": "string", "pattern": chance.choice(PATTERNS)}


def _format(chance: random.Random) -> Schema:
    return {"type": "string", "format": chance.choice(FORMATS)}


def _integer(chance: random.Random) -> Schema:
    low = chance.randrange(-1000, 1000)
    return chance.choice(({"type": "integer"}, {"type": "integer", "minimum": low, "maximum": low + 250}))


def _number(chance: random.Random) -> Schema:
    low = chance.randrange(-90, 90) / 10
    return chance.choice(({"type": "number"}, {"type": "number", "minimum": low, "exclusiveMaximum": low + 2.5}))


def _enum(chance: random.Random) -> Schema:
    return {"enum": chance.sample([*WORDS, 1, 2.5, None, True, "\u00e9\u4e2d", 'say "hi"\n'], chance.randrange(1, 6))}


def _flag(chance: random.Random) -> Schema:
    return {"type": chance.choice(("boolean", "null"))}


def _object(chance: random.Random, depth: int) -> Schema:
    names = chance.sample(WORDS, chance.randrange(1, 5))
    return {
        "type": "object",
        "properties": {name: _value(chance, depth) for name in names},
        "required": [name for name in names if chance.random() < 0.7],
        "additionalProperties": False,
    }


def _array(chance: random.Random, depth: int) -> Schema:
    fewest = chance.randrange(3)
    return {"type": "array", "items": _value(chance, depth), "minItems": fewest, "maxItems": fewest + 2}


def _any_of(chance: random.Random, depth: int) -> Schema:
    return {"anyOf": [_value(chance, depth) for _ in range(chance.randrange(2, 4))]}
