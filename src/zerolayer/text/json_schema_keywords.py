"""Keywords of JSON schemas that the compiler of grammars lacks, said in those that it has.

Source: https://json-schema.org/draft/2020-12/json-schema-core and -validation. The new schema allows nothing that the
old one forbids. It may allow less, where all of it cannot be said: an answer has to be valid, not of every kind.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from zerolayer.text.json_schema import Schema, SchemaRefused
from zerolayer.text.json_schema_apart import apart, constants, types
from zerolayer.text.json_schema_document import SchemaDocument
from zerolayer.text.json_schema_opposite import NoOpposite, Opposites, any_of, equal

MAX_WAYS: Final = 512  # lists of different items, choices of properties: each is written out
MAX_CASES: Final = 64  # of a oneOf; each is compared with each
_FEW: Final = frozenset({"type", "enum", "const", "minItems", "maxItems"})
_CONDITIONS: Final = frozenset({"anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies"})
_DEEPEST: Final = 128  # schemas in schemas of what is made


def plain(schema: dict[str, Any], *, strict: bool = True) -> dict[str, Any]:
    """The schema (of ``read_schema``) in keywords that the compiler has. Raises SchemaRefused.

    With ``strict`` false a keyword that cannot be kept is left out.
    """
    try:
        return _Plain(schema, strict).object(schema)
    except RecursionError:
        raise SchemaRefused("its conditions are nested too deeply") from None


class _Plain:
    """One schema. ``_rules`` are tried in their order: later ones read what earlier ones wrote."""

    def __init__(self, root: dict[str, Any], strict: bool) -> None:
        self._document = SchemaDocument(root)
        self._opposites = Opposites(self._document)
        self._strict = strict
        self._depth = 0
        self._rules: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
            "not": self._not,
            "if": self._if,
            "oneOf": self._one_of,
            "dependencies": self._dependencies,
            "dependentRequired": self._dependent_required,
            "dependentSchemas": self._dependent_schemas,
            "propertyNames": self._property_names,
            "unevaluatedProperties": self._unevaluated_properties,
            "unevaluatedItems": self._unevaluated_items,
            "minProperties": self._least_properties,
            "maxProperties": self._most_properties,
            "uniqueItems": self._unique_items,
            "contains": self._contains,
        }
        self._replaced = self._rules.keys() | {"then", "else", "minContains", "maxContains"}

    def schema(self, given: Schema) -> Schema:
        """A copy. What stands for several places is written once for each, and counted."""
        return given if isinstance(given, bool) else self.object(given)

    def object(self, given: dict[str, Any]) -> dict[str, Any]:
        """A copy of a schema that is neither true nor false."""
        self._document.write(1)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise SchemaRefused("its conditions are nested too deeply")
        made = {name: self._inside(name, value) for name, value in given.items() if name not in self._replaced}
        for keyword, rule in self._rules.items():
            if keyword in given:
                try:
                    rule(given, made)
                except (NoOpposite, _NotKept) as refused:
                    if self._strict:
                        raise SchemaRefused(f"'{keyword}' in it: {refused}") from None
        self._depth -= 1
        return made

    def _inside(self, keyword: str, value: Any) -> Any:
        if keyword in {"properties", "patternProperties", "$defs", "definitions"}:
            return {name: self.schema(inner) for name, inner in value.items()}
        if keyword in {"allOf", "anyOf", "prefixItems"}:
            return [self.schema(inner) for inner in value]
        if keyword in {"items", "additionalProperties"}:
            return self.schema(value)
        return value

    def _opposite(self, given: Schema, beside: Schema) -> Schema:
        """The opposite of ``given`` where ``beside`` holds too."""
        return self.schema(self._opposites.of(given, self._names(beside)))

    def _names(self, schema: Schema) -> list[str]:
        """Properties that the schema, what it is made of and what it refers to speak of."""
        parts = self._document.parts(schema, "allOf", "anyOf", "oneOf")
        return list(dict.fromkeys(name for part in parts for name in part.get("properties", ())))

    # --- conditions

    def _not(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        _also(made, self._opposite(given["not"], given))

    def _if(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        condition = given["if"]
        if "then" not in given and "else" not in given:
            return
        holds = {"allOf": [self.schema(condition), self.schema(given.get("then", True))]}
        fails = {"allOf": [self._opposite(condition, given), self.schema(given.get("else", True))]}
        _also(made, {"anyOf": [holds, fails]})

    def _one_of(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        cases = given["oneOf"]
        if len(cases) > MAX_CASES:
            made["oneOf"] = [self.schema(case) for case in cases]  # the compiler tells constants apart
            return
        names = {"allOf": [given, *cases]}
        try:
            _also(made, {"anyOf": [self._only(case, at, cases, names) for at, case in enumerate(cases)]})
        except NoOpposite:
            if self._strict:
                raise _NotKept("its cases cannot be told apart; use anyOf, or give each its own constant") from None
            _also(made, {"anyOf": [self.schema(case) for case in cases]})

    def _only(self, case: Schema, at: int, cases: list[Schema], beside: dict[str, Any]) -> Schema:
        """``case``, and none of the others."""
        others = [other for place, other in enumerate(cases) if place != at and not apart(case, other, self._document)]
        return {"allOf": [self.schema(case), *(self._opposite(other, beside) for other in others)]}

    def _dependencies(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        for name, needed in given["dependencies"].items():
            self._depends(made, name, {"required": needed} if isinstance(needed, list) else needed)

    def _dependent_required(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        for name, needed in given["dependentRequired"].items():
            self._depends(made, name, {"required": needed})

    def _dependent_schemas(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        for name, needed in given["dependentSchemas"].items():
            self._depends(made, name, needed)

    def _depends(self, made: dict[str, Any], name: str, needed: Schema) -> None:
        without = {"properties": {name: False}}
        _also(made, {"anyOf": [without, {"allOf": [{"required": [name]}, self.schema(needed)]}]})

    # --- objects

    def _property_names(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        names = self._document.settled(given["propertyNames"])
        if names is True or (isinstance(names, dict) and "string" in types(names) and names.keys() <= {"type"}):
            return
        if "patternProperties" in made:
            raise _NotKept("it cannot be kept beside patternProperties")
        known, further = made.get("properties", {}), made.get("additionalProperties", True)
        values = [] if isinstance(names, bool) or "string" not in types(names) else constants(names)
        if values is not None:
            made["properties"] = {name: known.get(name, further) for name in values if isinstance(name, str)}
        elif isinstance(names, dict):
            pattern = _name_pattern(names)
            made["properties"] = {name: value if _found(pattern, name) else False for name, value in known.items()}
            made["patternProperties"] = {pattern: further}
        made["additionalProperties"] = False

    def _unevaluated_properties(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        if given["unevaluatedProperties"] is True:
            return
        parts = list(self._document.parts(given, "allOf"))
        if any("additionalProperties" in part for part in parts):
            return
        if any(_CONDITIONS & part.keys() for part in parts):
            raise _NotKept("it cannot be kept beside conditions; use additionalProperties")
        names = {name: True for part in parts for name in part.get("properties", ())}
        patterns = {name: True for part in parts for name in part.get("patternProperties", ())}
        closed = {"properties": names, "additionalProperties": self.schema(given["unevaluatedProperties"])}
        _also(made, {**closed, "patternProperties": patterns} if patterns else closed)

    def _most_properties(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        if "minProperties" not in given:
            self._least_properties(given, made)

    def _least_properties(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        """The compiler counts properties where all that have names are required: choices are written out for it."""
        required = set(made.get("required", ()))
        known = [name for name, value in made.get("properties", {}).items() if value is not False]
        optional = [name for name in known if name not in required]
        bounds: dict[str, int] = {name: given[name] for name in ("minProperties", "maxProperties") if name in given}
        low = max(0, bounds.get("minProperties", 0) - len(required))
        if not optional:
            if low > 1:
                raise _NotKept("names outside of 'properties' may come twice, so they cannot be counted; name them")
            made.update(bounds)
            return
        high = min(bounds.get("maxProperties", math.inf) - len(required), len(optional))
        if low > len(optional):
            raise _NotKept("there are too few properties with a name")
        bounded = "maxProperties" in bounds
        sizes = range(low, int(high) + 1) if bounded and low else [int(high) if bounded else low]
        if sum(math.comb(len(optional), size) for size in sizes if size >= 0) > MAX_WAYS:
            raise _NotKept("it leaves too many choices among the optional properties")
        if bounded:
            made.pop("patternProperties", None)
            made["additionalProperties"] = False
        if (low, high) != (0, len(optional)):
            _also(made, any_of(list(self._choices(optional, sizes, low > 0, bounded))))

    def _choices(self, optional: list[str], sizes: Iterable[int], least: bool, most: bool) -> Iterator[Schema]:
        """One schema for each choice of so many names: ``least`` these, ``most`` these."""
        for chosen in itertools.chain(*(itertools.combinations(optional, size) for size in sizes if size >= 0)):
            self._document.write(1 + len(optional))
            others = [name for name in optional if name not in chosen] if most else []
            yield {"required": list(chosen) if least else [], "properties": dict.fromkeys(others, False)}

    # --- lists

    def _unique_items(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        if not given["uniqueItems"] or given.get("maxItems", 2) < 2:
            return
        items = self._document.settled(given.get("items", True))
        values = None if isinstance(items, bool) or not items.keys() <= _FEW else _few(items)
        if values is None or given.keys() & {"prefixItems", "contains"}:
            raise _NotKept("only items of an enum can be kept different; leave it out and check the answer")
        low, high = given.get("minItems", 0), min(given.get("maxItems", len(values)), len(values))
        sizes = range(low, high + 1)
        choose: Callable[[list[Any], int], Iterator[tuple[Any, ...]]] = itertools.permutations
        if sum(math.perm(len(values), size) for size in sizes) > MAX_WAYS:
            choose = itertools.combinations  # in the order of the schema: one way to write each set
        if sum(math.comb(len(values), size) for size in sizes) > MAX_WAYS:
            raise _NotKept("there are too many lists of different items; set a smaller maxItems, or leave it out")
        lists = [list(chosen) for size in sizes for chosen in choose(values, size)]
        self._document.write(sum(map(len, lists)))
        made.pop("items", None)
        others = sorted(types(given) - {"array"})
        _also(made, any_of([*([{"type": others}] if others else []), {"enum": lists}]))

    def _contains(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        wanted, least, most = given["contains"], given.get("minContains", 1), given.get("maxContains", math.inf)
        before, items = given.get("prefixItems", []), given.get("items", True)
        if most < given.get("maxItems", math.inf):
            if before:
                raise _NotKept("maxContains cannot be kept beside prefixItems")
            made["items"] = {"allOf": [self.schema(items), self._opposite(wanted, items)]}
        if least > most:
            _also(made, {"type": sorted(types(given) - {"array"})})
        if least:
            first = [{"allOf": [self.schema(items), self.schema(wanted)]} for _ in range(least)]
            made["prefixItems"] = [*made.get("prefixItems", ()), *first]
            made["minItems"] = max(len(before) + least, given.get("minItems", 0))

    def _unevaluated_items(self, given: dict[str, Any], made: dict[str, Any]) -> None:
        if given["unevaluatedItems"] is True or "items" in given:
            return
        if (_CONDITIONS | {"allOf", "$ref"}) & given.keys():
            raise _NotKept("it cannot be kept beside conditions; use items")
        made["items"] = self.schema(given["unevaluatedItems"])


class _NotKept(Exception):
    """A keyword cannot be kept, for the reason in the text."""


def _also(schema: dict[str, Any], further: Schema) -> None:
    if further is not True:
        schema["allOf"] = [*schema.get("allOf", ()), further]


def _few(items: dict[str, Any]) -> list[Any] | None:
    """All values that the items may have, each once."""
    values = constants(items)
    if values is None:
        values = [False, True] if items.get("type") == "boolean" else None
    if values is None:
        return None
    different: list[Any] = []
    for value in values:
        if not any(equal(value, known) for known in different):
            different.append(value)
    return different


def _name_pattern(names: dict[str, Any]) -> str:
    """A regular expression for the names that a schema of texts allows."""
    if names.keys() <= {"type", "pattern"}:
        pattern: str = names["pattern"]
        return pattern
    if names.keys() <= {"type", "minLength", "maxLength"}:
        return f"^[\\s\\S]{{{names.get('minLength', 0)},{names.get('maxLength', '')}}}$"
    raise _NotKept("of names only enum, a pattern or a length can be kept")


def _found(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name, re.ASCII) is not None
    except re.error:
        raise _NotKept("its pattern cannot be read") from None
