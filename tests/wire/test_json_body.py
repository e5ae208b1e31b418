"""What strict decoding refuses, and what its errors say."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.errors import BodyTooLarge, InvalidRequest
from zerolayer.wire.json_body import decode_strict


class Inner(msgspec.Struct):
    number: int | None = None


class Body(msgspec.Struct):
    name: str | None = None
    number: int | None = None
    ratio: float | None = None
    flag: bool | None = None
    parts: list[Inner] | None = None
    bias: dict[str, int] | None = None


DECODER = msgspec.json.Decoder(Body)


def decode(body: bytes) -> Body:
    return decode_strict(DECODER, body, 1_000_000)


def refusal(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode(body)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":"a","number":1}',
        b' {"name": "a", "number": 1}\n',
        b'{"unknown":{"name":[1,2.5,null,true,"x"]},"name":"a","number":1}',
        b'{"name":"\\u0061","number":1,"ratio":null}',
        b'{"big":' + b"9" * 6000 + b',"name":"a","number":1}',
    ],
)
def test_unknown_members_white_space_and_escapes_do_not_matter(body: bytes) -> None:
    value = decode(body)
    assert (value.name, value.number) == ("a", 1)


@pytest.mark.parametrize(
    "body",
    [b'{"name":"a","name":"b"}', b'{"name":null, "name":"b"}', b'{"name":"a","n\\u0061me":"b"}'],
)
def test_of_a_name_that_appears_twice_in_one_object_the_last_one_counts(body: bytes) -> None:
    assert decode(body).name == "b"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{}x",
        b"{}{}",
        b"\xef\xbb\xbf{}",
        b"{'name':1}",
        b'{"name":"a",}',
        b'{"ratio":NaN}',
        b'{"ratio":Infinity}',
        b'{"ratio":.5}',
        b'{"number":01}',
        b'{"name":"a\nb"}',
        b'{"name":"\\ud800"}',
        b'{"name":"\xff"}',
        b'{"unknown":"\xff"}',
        b'{"\xff":1}',
        b'{"unknown":"\xed\xa0\x80"}',
        b"\xff",
        b'{"name":"a"}\x00',
        b'{\x00"name":"a"}',
        '{"name":"a"}'.encode("utf-16"),
    ],
)
def test_what_is_not_json_in_utf_8_is_refused(body: bytes) -> None:
    assert refusal(body).param is None


def test_the_place_of_a_syntax_error_is_told() -> None:
    assert "byte 8" in refusal(b'{"name":x}').message


def test_an_empty_body_is_refused() -> None:
    assert "empty" in refusal(b"").message


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"{}"', b"true"])
def test_only_an_object_is_a_body(body: bytes) -> None:
    assert "must be an object" in refusal(body).message


@pytest.mark.parametrize("opening", [b'{"unknown":' + b"[" * 200_000, b'{"unknown":' * 200_000])
def test_nesting_without_end_is_refused(opening: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_strict(DECODER, opening, 10_000_000)


def test_deep_but_complete_nesting_is_refused_as_too_deep() -> None:
    assert "too deep" in refusal(b'{"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}").message


def test_a_body_above_the_limit_is_refused_unread() -> None:
    with pytest.raises(BodyTooLarge):
        decode_strict(DECODER, b"x" * 11, 10)


@pytest.mark.parametrize(
    ("body", "param", "wanted"),
    [
        (b'{"name":1}', "name", "a string, not an integer"),
        (b'{"number":"1"}', "number", "an integer, not a string"),
        (b'{"number":1.5}', "number", "an integer, not a number"),
        (b'{"number":true}', "number", "an integer, not true or false"),
        (b'{"ratio":"0.5"}', "ratio", "a number, not a string"),
        (b'{"flag":1}', "flag", "true or false, not an integer"),
        (b'{"parts":{}}', "parts", "a list, not an object"),
        (b'{"parts":[{},{"number":"secret"}]}', "parts[1].number", "an integer, not a string"),
        (b'{"parts":[1]}', "parts[0]", "an object, not an integer"),
        (b'{"bias":{"secret":"x"}}', "bias[...]", "an integer, not a string"),
    ],
)
def test_a_wrong_type_names_the_member_and_what_it_should_be(body: bytes, param: str, wanted: str) -> None:
    error = refusal(body)
    assert error.param == param
    assert error.message == f"'{param}' must be {wanted}."


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"ratio":1e400}', "ratio"),
        (b'{"ratio":-' + b"9" * 400 + b"}", "ratio"),
        (b'{"number":' + b"9" * 5000 + b"}", "number"),
    ],
)
def test_a_number_that_no_type_can_hold_is_out_of_range(body: bytes, param: str) -> None:
    error = refusal(body)
    assert (error.param, error.message) == (param, f"'{param}' is out of range.")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_decoded_or_refused(body: bytes) -> None:
    try:
        outcome: object = decode(body)
    except InvalidRequest as error:
        outcome = error
    assert isinstance(outcome, Body | InvalidRequest)


TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_any_json_is_ignored_where_it_is_unknown(value: object, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps({"unknown": value, "name": "a"}, ensure_ascii=ascii_only, indent=indent).encode()
    assert decode(body).name == "a"
