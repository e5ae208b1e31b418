"""Keywords that the compiler lacks: what answers may then be is judged by the library ``jsonschema``."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text.byte_grammars import END, accepts, asking, build, mask, why
from zerolayer.errors import InvalidRequest
from zerolayer.text.grammar import Grammars
from zerolayer.wire.schema import Request, Route, Tool, ToolChoice, ToolMode


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return build()


def text_of(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def judge(schema: object) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema)


def written(grammars: Grammars, schema: object, chance: random.Random, longest: int = 300) -> str | None:
    """A document of random tokens that the grammar allows, None if it did not end in time."""
    found = grammars.of(asking(schema))
    assert found is not None
    state, said = found.start(), bytearray()
    for _ in range(longest):
        allowed = mask(state)
        if END in allowed and (len(allowed) == 1 or chance.random() < 0.7):
            return said.decode()
        plain = [token for token in allowed if token < 127]
        ends = [token for token in plain if token in b'"]},']
        token = chance.choice(ends if ends and chance.random() < 0.5 else plain)
        assert state.consume_token(token)
        said.append(token)
    return None


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
KIND = {"enum": ["card", "cash", "cheque"]}
PAYMENT = {"type": "object", "additionalProperties": False, "required": ["kind"],
           "properties": {"kind": KIND, "number": {"type": "integer"}, "till": {"type": "integer"}}}  # fmt: skip
CARD = {"properties": {"kind": {"const": "card"}}, "required": ["kind"]}
SEVEN = {"type": "object", "properties": {f"p{at}": {"type": "integer"} for at in range(7)}}

# A schema, documents that it must let pass, and documents that it must not.
KEPT: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "not: a constant": ({"type": "string", "not": {"const": "no"}}, ["", "n", "not", "yes"], ["no"]),
    "not: some of an enum": ({"enum": ["a", "b", 1, None], "not": {"enum": ["a", None]}}, ["b", 1], ["a", None]),
    "not: numbers": ({"type": "integer", "not": {"enum": [0, 2]}}, [-1, 1, 3], [0, 2]),
    "not: a type": ({"not": {"type": ["object", "array", "number"]}}, ["x", True, None], [1, 1.5, {}, []]),
    "not: a property": ({**OBJECT, "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]),
    "not: both properties": ({**OBJECT, "not": {"required": ["a", "b"]}}, [{"a": 1}, {"b": 1}], [{"a": 1, "b": 1}]),
    "not: anything": ({**OBJECT, "properties": {"a": {"not": {}}}}, [{}, {"b": "x"}], [{"a": 1}]),
    "not: not": ({"not": {"not": {"type": "null"}}}, [None], [1]),
    "not: any of": ({"type": "integer", "not": {"anyOf": [{"minimum": 9}, {"const": 3}]}}, [2, 8], [3, 9]),
    "not: in a reference": ({"not": {"$ref": "#/$defs/n"}, "type": "string", "$defs": {"n": {"const": "a"}}},
                            ["b"], ["a"]),
    "not: a long text": ({"type": "string", "not": {"minLength": 3}}, ["", "ab"], ["abc"]),
    "if, then": ({**PAYMENT, "if": CARD, "then": {"required": ["number"]}},
                 [{"kind": "cash"}, {"kind": "card", "number": 1}], [{"kind": "card"}]),
    "if, then, else": ({**PAYMENT, "if": CARD, "then": {"required": ["number"]}, "else": {"required": ["till"]}},
                       [{"kind": "cash", "till": 2}, {"kind": "card", "number": 1}], [{"kind": "cash"}]),
    "if that is absent": ({**OBJECT, "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
                          [{"a": 1, "b": 2}, {"a": 2}, {"b": 1}], [{"a": 1}, {}]),
    "if without then": ({"if": {"type": "string"}, "type": "integer"}, [1], ["x"]),
    "oneOf: constants": ({"oneOf": [{"const": 1}, {"const": 2}, {"type": "string"}]}, [1, 2, "x"], [3]),
    "oneOf: ranges": ({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 9}]}, [3, 9], [5]),
    "oneOf: overlapping ranges": ({"type": "integer", "oneOf": [{"maximum": 5}, {"minimum": 3}]}, [2, 6], [3, 4, 5]),
    "oneOf: lengths": ({"type": "string", "oneOf": [{"maxLength": 1}, {"minLength": 3}]}, ["a", "abc"], ["ab"]),
    "oneOf: which property": ({**OBJECT, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                              [{"a": 1}, {"b": 1}], [{}, {"a": 1, "b": 1}]),
    "oneOf: objects": ({"oneOf": [{**OBJECT, "required": ["a"]}, {"type": "object", "required": ["c"]}]},
                       [{"a": 1}, {"c": 1}], [{}, {"a": 1, "c": 1}]),
    "oneOf: closed objects": (
        {"oneOf": [{"type": "object", "properties": {"a": {"type": "integer"}, x: {"type": "integer"}},
                    "required": ["a"], "additionalProperties": False} for x in "bc"]},
        [{"a": 1, "b": 1}, {"a": 1, "c": 1}], [{"a": 1}]),
    "oneOf: references": (
        {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
         "$defs": {x: {"type": "object", "properties": {"k": {"const": x}}, "required": ["k"]} for x in "ab"}},
        [{"k": "a"}, {"k": "b"}], [{"k": "c"}]),
    "dependentRequired": ({**OBJECT, "dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    "dependentSchemas": ({**OBJECT, "dependentSchemas": {"a": {"required": ["b"]}}}, [{"b": 1}], [{"a": 1}]),
    "dependencies": ({**OBJECT, "dependencies": {"a": ["b"], "b": {"minProperties": 1}}}, [{"b": 1}], [{"a": 1}]),
    "propertyNames: a type": ({"type": "object", "propertyNames": {"type": "string"}}, [{"x": 1}], []),
    "propertyNames: an enum": ({"type": "object", "propertyNames": {"enum": ["x", "y"]},
                                "additionalProperties": {"type": "integer"}}, [{"x": 1}, {}], [{"z": 1}, {"x": "a"}]),
    "propertyNames: a pattern": ({**OBJECT, "propertyNames": {"pattern": "^[a-c]$"}}, [{"a": 1, "c": 2}], [{"z": 1}]),
    "propertyNames: a length": ({"type": "object", "propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
    "minProperties": ({**OBJECT, "minProperties": 1}, [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}], [{}]),
    "maxProperties": ({**OBJECT, "maxProperties": 1}, [{}, {"a": 1}, {"b": 1}], [{"a": 1, "b": 1}]),
    "exactly one property": ({**OBJECT, "minProperties": 1, "maxProperties": 1}, [{"a": 1}, {"b": 1}], [{}]),
    "some properties": ({**SEVEN, "required": ["p0"], "minProperties": 3, "maxProperties": 4},
                        [{"p0": 1, "p2": 1, "p3": 1}], [{"p0": 1, "p1": 1}, {f"p{at}": 1 for at in range(5)}]),
    "unevaluatedProperties": ({**OBJECT, "unevaluatedProperties": False}, [{"a": 1}], [{"c": 1}]),
    "unevaluatedProperties of a base": (
        {"$ref": "#/$defs/base", "properties": {"c": {"type": "integer"}}, "unevaluatedProperties": False,
         "$defs": {"base": OBJECT}}, [{"a": 1, "c": 1}], [{"d": 1}]),
    "unevaluatedItems": ({"type": "array", "prefixItems": [{"type": "null"}], "unevaluatedItems": False},
                         [[None], []], [[None, 1]]),
    "uniqueItems of few": ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True},
                           [[], ["b", "a"], ["c", "a", "b"]], [["a", "a"], ["a", "b", "a"]]),
    "uniqueItems of some": ({"type": "array", "items": {"enum": list("abcdefgh")}, "uniqueItems": True, "minItems": 2},
                            [["a", "c"], list("abcdefgh")], [["a"], ["a", "a"]]),
    "uniqueItems: false": ({"type": "array", "items": {"type": "integer"}, "uniqueItems": False}, [[1, 1]], []),
    "uniqueItems of one": ({"type": "array", "uniqueItems": True, "maxItems": 1}, [[], ["x"]], [[1, 1]]),
    "contains": ({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}},
                 [[5], [7, 1]], [[], [1, 2]]),
    "contains some": ({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}, "minContains": 2},
                      [[5, 9], [7, 8, 1]], [[5], [5, 1]]),
    "contains at most": ({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}, "maxContains": 1},
                         [[5], [7, 1]], [[5, 6], [1]]),
    "tuples as draft 7 has them": ({"type": "array", "items": [{"type": "null"}], "additionalItems": False},
                                   [[None], []], [[None, 1]]),
    "contents": ({"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}, ["QQ=="], []),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "passing", "failing"), KEPT.values(), ids=KEPT)
def test_a_keyword_is_kept(grammars: Grammars, schema: Any, passing: list[Any], failing: list[Any]) -> None:
    request = asking(schema)
    assert [value for value in passing if not accepts(grammars, request, text_of(value))] == []
    assert [value for value in failing if accepts(grammars, request, text_of(value))] == []


@pytest.mark.parametrize("schema", [case[0] for case in KEPT.values()], ids=KEPT)
def test_whatever_is_written_under_it_is_valid(grammars: Grammars, schema: Any) -> None:
    chance = random.Random(3)
    documents = [document for _ in range(12) if (document := written(grammars, schema, chance)) is not None]
    assert documents
    if isinstance(schema.get("items"), list):  # the judge is of 2020-12
        schema = {**schema, "prefixItems": schema["items"], "items": False}
    for document in documents:
        judge(schema).validate(json.loads(document))


REFUSED = {
    "uniqueItems": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "not": {"type": "string", "not": {"pattern": "^a"}},
    "if": {"type": "string", "if": {"format": "date"}, "then": {"minLength": 3}},
    "oneOf": {"oneOf": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]},
    "propertyNames": {"type": "object", "propertyNames": {"format": "date"}},
    "unevaluatedProperties": {"anyOf": [OBJECT, {"required": ["c"]}], "unevaluatedProperties": False},
    "minProperties": {"type": "object", "properties": {f"p{at}": {} for at in range(30)}, "minProperties": 15},
    "contains": {"type": "array", "prefixItems": [{}], "contains": {"const": 1}, "maxContains": 2},
}


@pytest.mark.parametrize("keyword", REFUSED)
def test_what_cannot_be_kept_is_refused_by_its_name(grammars: Grammars, keyword: str) -> None:
    assert f"'{keyword}'" in why(grammars, asking(REFUSED[keyword]))


@pytest.mark.parametrize("keyword", REFUSED)
def test_of_a_tool_that_is_not_strict_it_is_left_out(grammars: Grammars, keyword: str) -> None:
    """Nobody who sends tools of others asks for a guarantee, and clients send such schemas every day."""

    def calling(*, strict: bool) -> Request:
        schema = {"type": "object", "properties": {"v": REFUSED[keyword]}, "required": ["v"]}
        tool = Tool("f", "", json.dumps(schema).encode(), strict=strict)
        return Request(Route.CHAT, "m", tools=(tool,), tool_choice=ToolChoice(ToolMode.REQUIRED))

    assert f"'{keyword}'" in why(grammars, calling(strict=True))
    assert grammars.of(calling(strict=False)) is not None


HOSTILE: dict[str, Any] = {
    "opposites of themselves": {"not": {"$ref": "#/$defs/n"}, "$defs": {"n": {"not": {"$ref": "#/$defs/n"}}}},
    "a reference to itself": {"oneOf": [{"$ref": "#/$defs/n"}, {"const": 1}], "$defs": {"n": {"$ref": "#/$defs/n"}}},
    "cases in cases": {"oneOf": [{"oneOf": [{"oneOf": [{"minimum": at}]} for at in range(20)]} for _ in range(20)]},
    "cases of references": {
        "oneOf": [{"$ref": f"#/$defs/d{at}"} for at in range(60)],
        "$defs": {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{(at + by) % 60}"} for by in (1, 2)]} for at in range(60)},
    },
    "lists in lists": json.loads('{"contains": {"const": 1}, "minContains": 9, "items": ' * 20 + "{}" + "}" * 20),
    "conditions in conditions": json.loads('{"if": {"const": 1}, "then": ' * 60 + "{}" + "}" * 60),
    "many different items": {"items": {"enum": list(range(500))}, "uniqueItems": True},
    "contains very many": {"contains": {"const": 1}, "minContains": 10**9},
    "texts that are left out": {"not": {"enum": ["a" * at for at in range(60)]}},
    "opposites in a chain": {"not": {"$ref": "#/$defs/d0"},
                             "$defs": {f"d{at}": {"not": {"$ref": f"#/$defs/d{at + 1}"}} for at in range(400)}},
}  # fmt: skip


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_schema_costs_little_and_its_own_refusal(grammars: Grammars, schema: Any) -> None:
    import time

    began = time.thread_time()
    try:
        assert grammars.of(asking(schema)) is not None
    except InvalidRequest as refused:
        assert refused.status == 400
    assert time.thread_time() - began < 5


VALUES = st.sampled_from([None, True, 0, 1, 2.5, "a", "b", "ab", [], ["a"], {}, {"a": 1}])
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True)
SMALL = st.integers(0, 3)
LEAVES = st.one_of(
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=4)),
    st.builds(
        lambda name: {"type": name},
        TYPES,
    ),
    st.builds(lambda low: {"type": "integer", "minimum": low}, SMALL),
    st.builds(lambda high: {"type": "string", "maxLength": high}, SMALL),
    st.builds(lambda names: {"type": "object", "required": names}, NAMES),
    st.builds(lambda low, high: {"type": "object", "minProperties": low, "maxProperties": low + high}, SMALL, SMALL),
)


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    cases = st.lists(inner, min_size=1, max_size=3)
    fields = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    keywords = {
        "not": inner, "if": inner, "then": inner, "else": inner, "oneOf": cases, "anyOf": cases, "allOf": cases,
        "properties": fields, "required": NAMES, "dependentRequired": st.dictionaries(st.sampled_from("ab"), NAMES),
        "items": inner, "contains": inner, "uniqueItems": st.booleans(), "maxItems": SMALL, "minContains": SMALL,
        "maxContains": SMALL, "prefixItems": cases, "additionalProperties": st.booleans() | inner,
        "propertyNames": st.just({"enum": ["a", "b"]}) | st.just({"pattern": "^[ab]"}), "maxProperties": SMALL,
        "unevaluatedProperties": st.booleans(), "unevaluatedItems": st.booleans(), "minProperties": SMALL,
        "type": st.sampled_from(["object", "array"]),
    }  # fmt: skip
    return st.fixed_dictionaries({}, optional=keywords)


@settings(deadline=None, max_examples=80)
@given(st.recursive(LEAVES, combined, max_leaves=8), st.integers(0, 2**32))
def test_a_schema_of_any_keywords_is_refused_or_kept(grammars: Grammars, schema: Any, seed: int) -> None:
    try:
        grammars.of(asking(schema))
    except InvalidRequest:
        return
    chance = random.Random(seed)
    for _ in range(3):
        document = written(grammars, schema, chance, longest=120)
        if document is not None:
            judge(schema).validate(json.loads(document))
