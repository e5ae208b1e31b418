"""The schema's requests: what is understood, which limits hold, and that Google's decoder reads the same."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wire.inference_messages import COMPILED, HEALTH, ROOT, message
from wire.schema_client import encode_request
from zerolayer.errors import BodyTooLarge, InvalidRequest
from zerolayer.wire.body_limits import BodyLimits
from zerolayer.wire.protobuf_request import RequestDecoder
from zerolayer.wire.schema import Message, OutputFormat, Request, Route, Sampling

GenerateRequest = message("GenerateRequest")
LIMITS = BodyLimits(max_tokens=100)
SYSTEMS = {"terse": "Be brief."}
PROGRAMS = {"exact": Sampling(temperature=0.0, top_p=0.5, top_k=7, repetition_penalty=1.25)}
HELLO = [{"role": 2, "content": b"hello"}]


def decoder(limits: BodyLimits = LIMITS) -> RequestDecoder:
    return RequestDecoder(limits, 16, SYSTEMS, PROGRAMS)


def encoded(**fields: Any) -> bytes:
    return bytes(GenerateRequest(**({"model": "m"} | fields)).SerializeToString())


def request(**fields: Any) -> Request:
    return decoder().decode(encoded(**({"messages": HELLO} | fields)))


def refusal(limits: BodyLimits = LIMITS, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decoder(limits).decode(encoded(**({"messages": HELLO} | fields)))
    return caught.value


# --- the whole request


def test_a_plain_request_takes_the_defaults() -> None:
    assert request() == Request(Route.CHAT, "m", messages=(Message("user", "hello"),))


def test_every_field_arrives_where_it_belongs() -> None:
    given = request(
        system=b"You are.", event_time_ms=5, ingest_time_ms=6, ticket="t", session="s", seed=7, max_tokens=9,
        temperature=500_000, top_p=900_000, stream=True, top_k=40, min_p=100_000, repetition_penalty=1_100_000,
        presence_penalty=-1_000_000, frequency_penalty=2_000_000, top_logprobs=3, stop=["a", "é"], ignore_eos=True,
        deadline_ms=2_000, max_age_ms=3_000,
    )  # fmt: skip
    assert given == Request(
        Route.CHAT,
        "m",
        messages=(Message("system", "You are."), Message("user", "hello")),
        sampling=Sampling(0.5, 0.9, 40, 0.1, 1.1, -1.0, 2.0, 7, 3),
        max_tokens=9,
        stop=("a", "é"),
        stream=True,
        ignore_eos=True,
        deadline_ms=2_000,
        max_age_ms=3_000,
        event_time_ms=5,
        ingest_time_ms=6,
        ticket="t",
        session="s",
    )


def test_token_ids_are_the_whole_prompt() -> None:
    given = request(messages=[], token_ids=b"\x01\x00\x00\x00\x00\x01\x00\x00")
    assert (given.route, list(given.prompt)) == (Route.COMPLETIONS, [1, 256])  # type: ignore[arg-type]


def test_a_system_text_may_be_the_name_of_a_constant() -> None:
    assert request(system_name="terse").messages == (Message("system", "Be brief."), Message("user", "hello"))


def test_a_program_sets_its_parameters_and_leaves_the_others_free() -> None:
    assert request(program="exact", min_p=500_000).sampling == Sampling(0.0, 0.5, 7, 0.5, 1.25)


@pytest.mark.parametrize("name", ["seed", "top_logprobs", "temperature"])
def test_zero_is_not_the_same_as_absent_where_it_means_something(name: str) -> None:
    assert getattr(request(**{name: 0}).sampling, name) == 0
    assert getattr(request().sampling, name) in (None, 1.0)


def test_a_temperature_outside_is_moved_to_the_limit_where_the_contract_says_so() -> None:
    limits = BodyLimits(temperature=(0.5, 1.5), max_tokens=10, outside="clamp")
    given = decoder(limits).decode(encoded(messages=HELLO, temperature=0, max_tokens=99))
    assert (given.sampling.temperature, given.max_tokens) == (0.5, 10)


# --- limits


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": "m" * 257}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": HELLO * 17}, "messages"),
        ({"messages": [{"content": b"x"}]}, "messages.role"),
        ({"messages": [{"role": 4, "content": b"x"}]}, "messages.role"),
        ({"messages": [{"role": 2, "content": b"\xff"}]}, "messages.content"),
        ({"system": b"\xff"}, "system"),
        ({"system": b"x", "system_name": "terse"}, "system_name"),
        ({"system_name": "unknown"}, "system_name"),
        ({"program": "unknown"}, "program"),
        ({"program": "exact", "temperature": 1}, "temperature"),
        ({"program": "exact", "top_k": 1}, "top_k"),
        ({"token_ids": b"\0\0\0\0"}, "token_ids"),
        ({"token_ids": b"\0\0\0\0", "messages": [], "system": b"x"}, "token_ids"),
        ({"token_ids": b"\0\0\0\0", "messages": [], "system_name": "terse"}, "token_ids"),
        ({"token_ids": b"\0\0\0", "messages": []}, "token_ids"),
        ({"max_tokens": 101}, "max_tokens"),
        ({"temperature": 2_000_001}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1_000_001}, "top_p"),
        ({"top_k": 2**31}, "top_k"),
        ({"min_p": 1_000_001}, "min_p"),
        ({"repetition_penalty": 10_000_001}, "repetition_penalty"),
        ({"presence_penalty": -2_000_001}, "presence_penalty"),
        ({"frequency_penalty": 2_000_001}, "frequency_penalty"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a" * 1025]}, "stop"),
        ({"deadline_ms": 86_400_001}, "deadline_ms"),
        ({"max_age_ms": 86_400_001}, "max_age_ms"),
        ({"event_time_ms": 253_402_300_800_000}, "event_time_ms"),
        ({"ingest_time_ms": 2**64 - 1}, "ingest_time_ms"),
        ({"ticket": "t" * 65}, "ticket"),
        ({"ticket": "a b"}, "ticket"),
        ({"session": "é"}, "session"),
        ({"session": "s" * 129}, "session"),
        ({"output_schema": b" " * 65_537}, "output_schema"),
    ],
)
def test_what_is_outside_a_limit_is_refused_and_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m" * 256},
        {"messages": HELLO * 16},
        {"max_tokens": 100},
        {"temperature": 2_000_000},
        {"top_p": 1},
        {"top_k": 2**31 - 1},
        {"presence_penalty": -2_000_000},
        {"top_logprobs": 20},
        {"stop": ["a" * 1024] * 4},
        {"deadline_ms": 86_400_000},
        {"event_time_ms": 253_402_300_799_999},
        {"ticket": "~" * 64},
        {"session": "!" * 128},
        {"output_schema": b" " * 65_536},
    ],
)
def test_the_limit_itself_is_allowed(fields: dict[str, Any]) -> None:
    assert request(**fields)


@pytest.mark.parametrize("again", [1, 2])  # the second time the tail is remembered
def test_an_output_schema_arrives_as_it_was_written(again: int) -> None:
    whole = decoder()
    bodies = [encoded(messages=HELLO, output_schema=b'{"type": "integer"}')] * again
    outputs = [whole.decode(body).output for body in bodies]
    assert outputs == [OutputFormat(b'{"type": "integer"}', "output_schema")] * again
    assert whole.decode(encoded(messages=HELLO)).output is None


def test_a_body_above_the_limit_is_not_read() -> None:
    with pytest.raises(BodyTooLarge):
        decoder(BodyLimits(body_bytes=10)).decode(encoded(messages=HELLO))


# --- the format


def test_fields_may_come_in_any_order_and_the_last_one_counts() -> None:
    parts = [encoded(model="", temperature=1), encoded(model="n"), encoded(model="", messages=HELLO, seed=4)]
    given = decoder().decode(b"".join([*parts, encoded(model="", seed=5, temperature=2)]))
    assert (given.model, given.sampling.temperature, given.sampling.seed, len(given.messages)) == ("n", 2e-6, 5, 1)


def test_messages_before_and_after_the_tail_keep_their_order() -> None:
    late = encoded(messages=[{"role": 3, "content": b"later"}])
    given = decoder().decode(encoded(messages=HELLO) + late)
    assert [message.content for message in given.messages] == ["hello", "later"]


def test_unknown_fields_are_ignored() -> None:
    unknown = b"\xf8\x07\x01" + b"\xfa\x07\x02ab" + b"\xfd\x07\0\0\0\0"
    assert decoder().decode(encoded(messages=HELLO) + unknown) == request()


def test_a_known_number_with_another_wire_type_is_an_unknown_field() -> None:
    assert decoder().decode(encoded(messages=HELLO) + b"\x60\x05" + b"\x65\0\0\0\0").max_tokens == 5


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x21\0",
        b"\x60\x80",
        b"\x60" + b"\x80" * 10 + b"\x01",
        b"\x60" + b"\xff" * 9 + b"\x7f",
        b"\x00\x01",
        b"\x0b\x0c",
        b"\x0f",
        b"\xff\xff\xff\xff\xff\x01\x00",
        b"\x12\x02\x08",
    ],
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decoder().decode(body)


def test_no_part_of_a_request_is_in_the_refusal() -> None:
    assert "secret" not in refusal(model="secret" * 50).message


def test_a_remembered_tail_gives_what_a_new_one_gives() -> None:
    warm, bodies = decoder(), [encoded(messages=HELLO, seed=1), encoded(token_ids=b"\x01\0\0\0")]
    for body in bodies:
        warm.decode(body)
    assert [warm.decode(body) for body in bodies] == [decoder().decode(body) for body in bodies]


def test_tails_that_never_repeat_do_not_make_the_decoder_grow() -> None:
    full = decoder()
    for number in range(3000):
        full.decode(encoded(messages=HELLO, deadline_ms=number + 1))
    assert len(full._plans) <= 1024


# --- against Google's implementation

MILLIONTHS = st.integers(0, 2_000_000).map(lambda scaled: scaled / 1_000_000)
VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=8)
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
NUMBERS = st.none() | st.integers(1, 86_400_000)
SAMPLING = st.builds(
    Sampling,
    temperature=MILLIONTHS,
    top_p=st.integers(1, 1_000_000).map(lambda scaled: scaled / 1_000_000),
    top_k=st.integers(0, 2**31 - 1),
    min_p=st.integers(0, 1_000_000).map(lambda scaled: scaled / 1_000_000),
    repetition_penalty=st.integers(1, 10_000_000).map(lambda scaled: scaled / 1_000_000),
    presence_penalty=MILLIONTHS.map(lambda value: -value),
    frequency_penalty=MILLIONTHS,
    seed=st.none() | st.integers(0, 2**64 - 1),
    top_logprobs=st.none() | st.integers(0, 20),
)
COMMON = {
    "model": st.text(st.characters(codec="utf-8"), min_size=1, max_size=60),
    "sampling": SAMPLING,
    "max_tokens": st.none() | st.integers(1, 100),
    "stop": st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=4), max_size=4).map(tuple),
    "stream": st.booleans(),
    "ignore_eos": st.booleans(),
    "deadline_ms": NUMBERS,
    "max_age_ms": NUMBERS,
    "event_time_ms": NUMBERS,
    "ingest_time_ms": NUMBERS,
    "ticket": VISIBLE,
    "session": VISIBLE,
}
MESSAGES = st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), TEXT), min_size=1, max_size=16)
IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300).map(lambda ids: array("I", ids))
REQUESTS = st.one_of(
    st.builds(Request, route=st.just(Route.CHAT), messages=MESSAGES.map(tuple), **COMMON),
    st.builds(Request, route=st.just(Route.COMPLETIONS), prompt=IDS, **COMMON),
)


@given(REQUESTS)
def test_a_request_survives_our_encoder_and_decoder(original: Request) -> None:
    warm = decoder()
    body = encode_request(original)
    assert [warm.decode(body), warm.decode(body)] == [original, original]


@given(REQUESTS)
def test_googles_decoder_reads_our_encoding_and_we_read_what_it_writes_again(original: Request) -> None:
    assert decoder().decode(GenerateRequest.FromString(encode_request(original)).SerializeToString()) == original


def same_or_refused(body: bytes, ours: RequestDecoder) -> bool:
    """Whatever we accept, Google's decoder accepts too, and after its normalisation we read the same."""
    try:
        mine = ours.decode(body)
    except InvalidRequest:
        return True
    theirs = GenerateRequest.FromString(body)
    theirs.DiscardUnknownFields()
    return decoder().decode(theirs.SerializeToString()) == mine


@given(st.binary(max_size=120))
def test_arbitrary_bytes_give_a_request_or_one_refusal(body: bytes) -> None:
    assert same_or_refused(body, decoder())


@given(st.data(), REQUESTS)
def test_a_damaged_request_is_refused_or_read_as_google_reads_it(data: st.DataObject, original: Request) -> None:
    body, warm = encode_request(original), decoder()
    warm.decode(body)  # so that the short way is taken where it can be
    at = data.draw(st.integers(0, min(len(body), 40)))
    damaged = body[:at] + data.draw(st.binary(max_size=3)) + body[at + data.draw(st.integers(0, 3)) :]
    assert same_or_refused(damaged, warm)


@given(st.lists(st.binary(min_size=1, max_size=6).map(lambda raw: b"\x12" + raw), max_size=4))
@example([b"\x12\x85\x00\x08\x02\x12\x01a"])
@example([b"\x12\x05\x08\x02\x12\x81\x00"])
@example([b"\x12\x09\x08\x01\xf0\x90\x80\x80\x30\x00\x00"])  # a field number beyond the last one
def test_messages_of_odd_shapes_are_refused_or_read_as_google_reads_them(parts: list[bytes]) -> None:
    warm = decoder()
    warm.decode(encoded(messages=HELLO))
    assert same_or_refused(b"".join(parts) + encoded(), warm)


@pytest.mark.parametrize(
    ("source", "compiled"), [("zerolayer/v1/inference.proto", COMPILED), ("grpc/health/v1/health.proto", HEALTH)]
)
def test_what_was_compiled_of_the_schema_is_current(tmp_path: Any, source: str, compiled: Path) -> None:
    from grpc_tools import protoc

    target = tmp_path / "now"
    command = ["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={target}", str(ROOT / "proto" / source)]
    assert protoc.main(command) == 0
    assert target.read_bytes() == compiled.read_bytes(), "run `make proto`"
