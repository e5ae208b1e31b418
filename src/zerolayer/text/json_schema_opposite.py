"""The opposite of a JSON schema, for the keywords ``not``, ``if`` and ``oneOf``, said without them.

What an opposite allows, its schema forbids. It may allow less than all of that: of numbers that are not whole, for
instance, it says nothing where the schema is ``{"type": "integer"}``. Answers have to be valid, not of every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from zerolayer.text.json_schema import ANNOTATIONS, Schema, SchemaRefused
from zerolayer.text.json_schema_document import SchemaDocument

TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
_LONGEST: Final = 1_024  # characters of texts that a regular expression leaves out
_WITHOUT: Final = frozenset({
    "$ref", "oneOf", "if", "then", "else", "pattern", "format", "multipleOf", "items", "uniqueItems", "minContains",
    "maxContains", "patternProperties", "propertyNames", "dependentSchemas", "dependencies", "unevaluatedItems",
    "unevaluatedProperties", "$dynamicRef", "$recursiveRef",
})  # fmt: skip
_FOLLOWED: Final = 16  # references in references
_DEEPEST: Final = 256  # and of one of them
_ANYTHING: Final = r"[\s\S]"


class NoOpposite(SchemaRefused):
    """The opposite of some keyword cannot be written; the text names it."""

    def __init__(self, keyword: str) -> None:
        super().__init__(f"the opposite of '{keyword}' cannot be kept")


class Opposites:
    """Opposites of the schemas of one document."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._open: list[str] = []  # references that are being followed

    def of(self, given: Schema, names: Collection[str] = ()) -> Schema:
        """A schema whose values ``given`` forbids. Raises NoOpposite, SchemaRefused.

        ``names``: properties that an object may have for being none of a schema that allows no further ones.
        """
        self._document.look()
        if isinstance(given, bool):
            return not given
        cases: list[Schema] = []
        for keyword, value in given.items():
            if keyword in _RULES:
                cases.append(_RULES[keyword](value))
            elif keyword == "additionalProperties":
                if value is not True:
                    cases.append(_further(given, names))
            elif keyword not in ANNOTATIONS:
                cases.append(self._combined(keyword, value, names))
        return any_of(cases)

    def _combined(self, keyword: str, value: Any, names: Collection[str]) -> Schema:
        match keyword:
            case "not":
                schema: Schema = value
                return schema
            case "allOf":
                return any_of([self.of(case, names) for case in value])
            case "anyOf":
                return {"allOf": [self.of(case, names) for case in value]}
            case "contains":
                return {"type": "array", "items": self.of(value, names)}
            case "properties":
                others = [(name, self.of(inner, names)) for name, inner in value.items()]
                return any_of([{"type": "object", "required": [name], "properties": {name: other}}
                               for name, other in others if other is not False])  # fmt: skip
            case "prefixItems":
                items = [(at, self.of(inner, names)) for at, inner in enumerate(value)]
                return any_of([{"type": "array", "prefixItems": [*[True] * at, other], "minItems": at + 1}
                               for at, other in items if other is not False])  # fmt: skip
            case "$ref" if value not in self._open and len(self._open) < _FOLLOWED:
                self._open.append(value)
                found = self.of(self._document.resolve(value), names)
                self._open.pop()
                return found
            case _:
                if keyword in _WITHOUT:
                    raise NoOpposite(keyword)
                return False  # a remark, which nothing can break


def any_of(cases: list[Schema]) -> Schema:
    """One of ``cases``; of none, nothing."""
    kept = [case for case in cases if case is not False]
    if not kept:
        return False
    return kept[0] if len(kept) == 1 else {"anyOf": kept}


def equal(one: object, other: object) -> bool:
    """Whether two JSON values are the same value: 1 is 1.0 and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return one == other


def _no_value(values: list[Any]) -> Schema:
    """Everything but ``values``, which are constants."""
    texts = {value for value in values if isinstance(value, str)}
    numbers = sorted({value for value in values if isinstance(value, int | float) and not isinstance(value, bool)})
    cases: list[Schema] = []
    if None not in values:
        cases.append({"type": "null"})
    cases += [{"const": flag} for flag in (False, True) if not any(value is flag for value in values)]
    for below, above in zip([None, *numbers], [*numbers, None], strict=True):
        bounds = {"exclusiveMinimum": below, "exclusiveMaximum": above}
        cases.append({"type": "number", **{name: bound for name, bound in bounds.items() if bound is not None}})
    cases.append({"type": "string", "pattern": f"^{_other_texts(texts)}$"} if texts else {"type": "string"})
    for name, kind in (("array", list), ("object", dict)):
        if not any(isinstance(value, kind) for value in values):
            cases.append({"type": name})
    return any_of(cases)


def _other_texts(texts: set[str]) -> str:
    """A regular expression without look-ahead for every text but ``texts``."""
    if sum(map(len, texts)) > _LONGEST or any(len(text) > _DEEPEST for text in texts):
        raise NoOpposite("enum")
    return _after("", sorted(texts))


def _after(begun: str, texts: list[str]) -> str:
    """What may follow ``begun``, with which all ``texts`` begin."""
    at = len(begun)
    following = sorted({text[at] for text in texts if len(text) > at})
    if not following:
        return f"{_ANYTHING}+"
    cases = [] if begun in texts else [""]
    cases.append(f"[^{''.join(map(_escaped, following))}]{_ANYTHING}*")
    for longer in (begun + letter for letter in following):
        cases += [_escaped(longer[-1]) + _after(longer, [text for text in texts if text.startswith(longer)])]
    return f"(?:{'|'.join(cases)})"


def _escaped(letter: str) -> str:
    return f"\\x{{{ord(letter):x}}}"


def _no_type(value: object) -> Schema:
    named = value if isinstance(value, list) else [value]
    others = [name for name in TYPES if name not in named and not (name == "number" and "integer" in named)]
    return {"type": others} if others else False


def _no_required(names: list[str]) -> Schema:
    return any_of([{"type": "object", "properties": {name: False}} for name in names])


def _no_dependent(needs: dict[str, list[str]]) -> Schema:
    return any_of([
        {"type": "object", "required": [name], "properties": {other: False}}
        for name, others in needs.items()
        for other in others
    ])  # fmt: skip


def _bound(kind: str, keyword: str, by: int = 0) -> Callable[[Any], Schema]:
    """The opposite of a bound is another bound of the same kind; ``by``: how far beyond it begins."""

    def rule(value: Any) -> Schema:
        return False if by and value + by < 0 else {"type": kind, keyword: value + by}

    return rule


def _further(given: Mapping[str, Any], names: Collection[str]) -> Schema:
    """Objects with a property that ``given``, which allows no further ones, does not have."""
    known = given.get("properties", {})
    others = [name for name in names if name not in known]
    if given["additionalProperties"] is not False or given.get("patternProperties") or not others:
        raise NoOpposite("additionalProperties")
    return any_of([{"type": "object", "required": [name]} for name in others])


_RULES: Final[dict[str, Callable[[Any], Schema]]] = {
    "type": _no_type,
    "const": lambda value: _no_value([value]),
    "enum": _no_value,
    "required": _no_required,
    "dependentRequired": _no_dependent,
    "minimum": _bound("number", "exclusiveMaximum"),
    "maximum": _bound("number", "exclusiveMinimum"),
    "exclusiveMinimum": _bound("number", "maximum"),
    "exclusiveMaximum": _bound("number", "minimum"),
    "minLength": _bound("string", "maxLength", -1),
    "maxLength": _bound("string", "minLength", 1),
    "minItems": _bound("array", "maxItems", -1),
    "maxItems": _bound("array", "minItems", 1),
    "minProperties": _bound("object", "maxProperties", -1),
    "maxProperties": _bound("object", "minProperties", 1),
}
