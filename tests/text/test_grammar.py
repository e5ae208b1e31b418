"""What becomes of schemas: bounded whatever they say, refused in words of ours, kept once compiled."""

from __future__ import annotations

import ctypes
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text.byte_grammars import END, SECRET, accepts, asking, build, why
from zerolayer.errors import InvalidRequest
from zerolayer.text import grammar, grammar_compiler, json_schema
from zerolayer.text.grammar import Grammars
from zerolayer.text.tool_format import HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, ToolFormat
from zerolayer.wire.schema import OutputFormat, Request, Route, Tool, ToolChoice, ToolMode


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return build()


def calling(*tools: Tool, mode: ToolMode = ToolMode.REQUIRED, many: bool = True, **more: Any) -> Request:
    return Request(Route.CHAT, "m", tools=tools, tool_choice=ToolChoice(mode), parallel_tool_calls=many, **more)


def nested(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b"{}" + b"}" * depth


# --- when it is compiled


def test_the_compiler_is_made_once_whoever_needs_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Slow(grammar_compiler.GrammarCompiler):
        def __init__(self, *made_of: Any) -> None:
            made.append(made_of)
            time.sleep(0.01)
            super().__init__(*made_of)

    monkeypatch.setattr(grammar_compiler, "GrammarCompiler", Slow)
    several = build()
    assert made == []
    threads = [threading.Thread(target=several.prepare) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert several.of(asking({"type": "null"})) is not None
    for thread in threads:
        thread.join()
    assert len(made) == 1


# --- what is allowed


def test_free_text_has_no_grammar(grammars: Grammars) -> None:
    assert grammars.of(Request(Route.CHAT, "m")) is None
    assert grammars.of(calling(Tool("f"), mode=ToolMode.AUTO)) is None
    assert grammars.of(calling(Tool("f", strict=True), mode=ToolMode.NONE)) is None


def test_an_answer_is_one_value_with_one_space_after_commas_and_colons(grammars: Grammars) -> None:
    request = asking({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}})
    assert accepts(grammars, request, '{"a": 1, "b": null}')
    assert not accepts(grammars, request, '{"a":1}')
    assert not accepts(grammars, request, '{"a": 1} ')
    assert not accepts(grammars, request, '{"a": "1"}')


def test_any_object_will_do_where_no_schema_is_given(grammars: Grammars) -> None:
    request = Request(Route.CHAT, "m", output=OutputFormat())
    assert accepts(grammars, request, '{"a": [1, {"b": "c"}]}')
    assert not accepts(grammars, request, "[1]")


def test_remarks_and_unknown_formats_hold_nobody_to_anything(grammars: Grammars) -> None:
    remarks = {"title": "t", "description": "d", "default": 1, "examples": [2], "$comment": "c", "format": "int64"}
    assert accepts(grammars, asking({"type": "integer", "x-own": {"not": 1}, **remarks}), "5")
    tricky = {"type": "object", "properties": {"format": {"type": "string"}, "default": {"type": "null"}}}
    assert accepts(grammars, asking(tricky), '{"format": "x", "default": null}')


def test_a_client_cannot_change_how_schemas_are_compiled(grammars: Grammars) -> None:
    lenient = {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}
    assert "uniqueItems" in why(grammars, asking(lenient))


# --- calls

ADD = Tool("add", "", b'{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}')
NOW = Tool("now")
WRITTEN = {
    HERMES: '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    LLAMA: '{"name": "add", "parameters": {"a": 1}}',
    MISTRAL: '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]',
    MISTRAL_NAMED: '[TOOL_CALLS]add[ARGS]{"a": 1}',
}
TWICE = {
    HERMES: '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    MISTRAL: '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]',
    MISTRAL_NAMED: "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[ARGS]{}",
}


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_a_required_call_is_written_as_the_model_writes_calls(form: ToolFormat) -> None:
    built = build(form)
    assert accepts(built, calling(ADD, NOW), WRITTEN[form])
    assert not accepts(built, calling(ADD, NOW), WRITTEN[form].replace("1", '"x"'))
    assert not accepts(built, calling(ADD, NOW), "Hello")
    assert not accepts(built, calling(NOW), WRITTEN[form])


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["object", "null"]},
        {"anyOf": [{"type": "integer"}, {"required": ["a"]}]},
        {"if": {"required": ["b"]}, "then": {"required": ["a"]}},
        {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {"type": "integer"}}}}},
    ],
)
def test_arguments_are_an_object_whatever_else_the_schema_lets_pass(grammars: Grammars, schema: object) -> None:
    request = calling(Tool("add", "", json.dumps(schema).encode()))
    assert accepts(grammars, request, WRITTEN[HERMES])
    assert not accepts(grammars, request, WRITTEN[HERMES].replace('{"a": 1}', "1"))
    assert not accepts(grammars, request, WRITTEN[HERMES].replace('{"a": 1}', "null"))


@pytest.mark.parametrize("form", TWICE, ids=lambda form: form.name)
def test_several_calls_are_allowed_where_they_are_parallel(form: ToolFormat) -> None:
    built = build(form)
    assert accepts(built, calling(NOW), TWICE[form])
    assert not accepts(built, calling(NOW, many=False), TWICE[form])


def test_only_the_tools_of_the_choice_may_be_called() -> None:
    built = build(LLAMA)
    request = Request(Route.CHAT, "m", tools=(ADD, NOW), tool_choice=ToolChoice(ToolMode.REQUIRED, ("now",)))
    assert accepts(built, request, '{"name": "now", "parameters": {}}')
    assert not accepts(built, request, WRITTEN[LLAMA])


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_strict_tools_are_called_rightly_even_where_the_model_may_choose(form: ToolFormat) -> None:
    built, strict = build(form), Tool("add", "", ADD.parameters, strict=True)
    request = calling(strict, NOW, mode=ToolMode.AUTO)
    for answer in ("Hello, <tool people> [and] {others}.", "", WRITTEN[form], '{"name": "Bob"}'):
        assert accepts(built, request, answer), answer
    assert not accepts(built, request, WRITTEN[form].replace("1", '"x"'))
    assert accepts(built, request, WRITTEN[form].replace("add", "now").replace('"a": 1', '"any": [1]'))


@pytest.mark.parametrize("mode", [ToolMode.REQUIRED, ToolMode.AUTO])
def test_a_marker_that_is_a_control_token_is_written_as_that_token(mode: ToolMode) -> None:
    built = build(MISTRAL_NAMED, control=("[TOOL_CALLS]", "[ARGS]"))
    request = calling(Tool("now", strict=True), mode=mode)
    tokens = {"[TOOL_CALLS]": END + 1, "[ARGS]": END + 2}
    assert accepts(built, request, "[TOOL_CALLS]now[ARGS]{}", tokens)
    assert accepts(built, request, "[TOOL_CALLS]now[ARGS]{}") is (mode is ToolMode.AUTO)  # letters are only text


def test_an_answer_may_be_a_value_or_a_call_where_both_are_asked_for(grammars: Grammars) -> None:
    request = calling(ADD, mode=ToolMode.AUTO, output=OutputFormat(b'{"type": "boolean"}'))
    assert accepts(grammars, request, "true")
    assert accepts(grammars, request, WRITTEN[HERMES])
    assert not accepts(grammars, request, "Hello")


# --- malformed and hostile schemas cost their own 400

WIDE = {f"p{at}": {} for at in range(json_schema.MAX_PROPERTIES + 1)}
REFUSED: dict[str, tuple[object, str]] = {
    "no JSON": (b"{", "not valid JSON"),
    "no schema": (5, "neither an object"),
    "no text as format": ({"format": {}, "type": SECRET}, "none that this keyword can have"),
    "no schema inside": ({"properties": {"a": SECRET}}, "neither an object"),
    "nothing": (False, "allows nothing"),
    "nested deeply": (nested(json_schema.MAX_DEPTH + 1), "deep"),
    "nested so deeply that no parser reads it": (nested(100_000), "deep"),
    "values nested deeply": (b'{"const":' + b"[" * 80 + b"]" * 80 + b"}", "deep"),
    "wide": ({"type": "object", "properties": WIDE}, "512"),
    "many parts": ({"anyOf": [{"enum": list(range(100))}] * 100}, "8192"),
    "huge enum": ({"enum": list(range(10_000))}, "8192"),
    "long pattern": ({"type": "string", "pattern": "a" * 513}, "512"),
    "long pattern of names": ({"type": "object", "patternProperties": {"a" * 513: {}}}, "512"),
    "a divisor with many remainders": ({"type": "integer", "multipleOf": 249_147_595}, "remainders"),
    "a broken divisor with many remainders": ({"type": "number", "multipleOf": 2.49147595}, "remainders"),
    "divisors that multiply": ({"type": "integer", "allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}, "remainders"),
    "many divisors": ({"anyOf": [{"type": "integer", "multipleOf": 9_973}] * 20}, "remainders"),
    "pattern that is none": ({"type": "string", "pattern": f"[{SECRET}"}, "pattern"),
    "look-around": ({"type": "string", "pattern": f"(?=a){SECRET}"}, "look-around"),
    "back reference": ({"type": "string", "pattern": "(a)\\1"}, "pattern"),
    "remote reference": ({"$ref": f"http://{SECRET}.example/x.json"}, "'$ref' must point into"),
    "file reference": ({"$ref": f"file:///etc/{SECRET}"}, "'$ref' must point into"),
    "reference to nowhere": ({"$ref": f"#/$defs/{SECRET}"}, "points nowhere"),
    "reference to itself": ({"$ref": "#"}, "allows nothing"),
    "references in a circle": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                                "$ref": "#/$defs/a"}, "allows nothing"),
    "unknown type": ({"type": SECRET}, "the value of 'type'"),
    "keyword of a wrong type": ({"type": "string", "maxLength": SECRET}, "the value of 'maxLength'"),
    "unsupported keyword": ({"$dynamicRef": "#" + SECRET}, "does not know $dynamicRef"),
    "contradiction": ({"type": "integer", "minimum": 3, "maximum": 2}, "nothing satisfies it"),
    "number beyond all": ({"type": "integer", "minimum": 10**400}, "cannot be kept"),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_schema_that_cannot_be_kept_is_refused_for_its_reason(grammars: Grammars, schema, reason: str) -> None:
    assert reason in why(grammars, asking(schema))


@pytest.mark.parametrize("schema", [case[0] for case in REFUSED.values()], ids=REFUSED)
def test_schemas_of_tools_are_judged_alike(grammars: Grammars, schema: object) -> None:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    assert "'tools'" in why(grammars, calling(Tool("f", "", text)))


WORDS = st.sampled_from([
    "type", "properties", "required", "items", "prefixItems", "additionalProperties", "patternProperties", "enum",
    "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "minLength", "maxLength", "pattern", "format", "minimum",
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames",
    "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties", "unevaluatedItems",
    "additionalItems", "minProperties", "exclusiveMaximum", "multipleOf", "minItems", "maxProperties", "title",
    "string", "integer", "object", "array",
    "number", "#", "#/$defs/a", "date", "uuid", "a{0,1000}b", "(", "[^]", "(?i)ab", "x{99999}", "\\1", "\0", "a**",
])  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(WORDS, ANYTHING, max_size=5))
def test_whatever_stands_in_a_schema_it_is_taken_or_refused(grammars: Grammars, schema: dict[str, object]) -> None:
    try:
        assert grammars.of(asking(schema)) is not None
    except InvalidRequest as refused:
        assert refused.param == "response_format"


@pytest.mark.parametrize("divisor", [1_000_000_000, 0.000_001, 0.05, 250, 9_973, 86_400])
def test_a_divisor_with_few_remainders_is_kept(grammars: Grammars, divisor: float) -> None:
    assert grammars.of(asking({"type": "number", "multipleOf": divisor})) is not None


HEAVY: dict[str, object] = {
    "remainders": {"type": "integer", "multipleOf": 9_973},
    "repeated groups": {"type": "string", "pattern": "^(((a{1,100}){1,100}){1,100}){1,100}$"},
    "catastrophic for others": {"type": "string", "pattern": "^(a+)+$"},
    "far look back": {"type": "string", "pattern": "(a|b)*a(a|b){30}"},
    "long text": {"type": "string", "minLength": 100_000, "maxLength": 1_000_000},
    "long list": {"type": "array", "items": {"type": "string"}, "minItems": 100_000},
    "many optional names": {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(512)}},
    "endless": {"$defs": {"n": {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "required": ["c"]}},
                "$ref": "#/$defs/n"},
    "branches": {"$defs": {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"},
                                                {"type": "array", "items": {"$ref": f"#/$defs/d{at + 1}"}}]}
                           for at in range(30)} | {"d30": {"type": "string"}}, "$ref": "#/$defs/d0"},
    "doubling": {"$defs": {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(25)}
                 | {"d25": {"type": "string"}}, "$ref": "#/$defs/d0"},
    "many cases": {"anyOf": [{"type": "object", "properties": {f"a{at}": {}, "k": {"const": at}}}
                             for at in range(500)]},
    "large numbers": {"type": "number", "minimum": -1e300, "maximum": 1e300},
}  # fmt: skip


@pytest.mark.parametrize("schema", HEAVY.values(), ids=HEAVY)
def test_a_heavy_schema_is_compiled_or_refused_within_its_limits(grammars: Grammars, schema: object) -> None:
    """CPU time of this thread, which a busy machine does not stretch; the bound is far from what was measured."""
    began = time.thread_time()
    try:
        found = grammars.of(asking(schema))
    except InvalidRequest:
        found = None
    row = (ctypes.c_uint32 * 9)()
    if found is not None:
        state = found.start()
        for _ in range(30):
            state.unsafe_compute_mask_ptr(ctypes.addressof(row), ctypes.sizeof(row))
            allowed = [at for at in range(END) if row[at // 32] >> (at % 32) & 1]
            if not allowed or not state.consume_token(allowed[-1]):
                break
    assert time.thread_time() - began < 5


def test_other_threads_run_while_a_grammar_is_compiled(grammars: Grammars) -> None:
    wide = {"type": "object", "properties": {f"q{at}": {"type": "string"} for at in range(400)}}
    ticks: list[int] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(1)
            time.sleep(0)

    ticking = threading.Thread(target=tick)
    ticking.start()
    before = len(ticks)
    try:
        grammars.of(asking(wide))
    finally:
        done.set()
        ticking.join()
    assert len(ticks) > before


# --- compiled once


def test_a_grammar_is_compiled_once_and_known_by_all_that_it_depends_on(grammars: Grammars) -> None:
    request = calling(ADD)
    assert grammars.slow(request)
    first = grammars.of(request)
    assert not grammars.slow(request)
    assert grammars.of(calling(ADD, messages=())) is first
    others = (
        calling(ADD, many=False),
        calling(NOW),
        calling(ADD, NOW),
        calling(Tool("ad", "", b"d" + ADD.parameters)),
        calling(Tool("add", "", ADD.parameters, strict=True), mode=ToolMode.AUTO),
        Request(Route.CHAT, "m", tools=(ADD,), tool_choice=ToolChoice(ToolMode.REQUIRED, ("add",))),
    )
    assert all(grammars.slow(other) for other in others)


def test_only_the_grammars_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "KEPT", 2)
    built = build()
    requests = [asking({"const": at}) for at in range(3)]
    for request in requests[:2]:
        built.of(request)
    built.of(requests[0])
    built.of(requests[2])
    assert [built.slow(request) for request in requests] == [False, True, False]


def test_a_model_without_an_end_token_says_so() -> None:
    assert "no end-of-sequence token" in why(build(ends=False), asking({}))
