"""Questions and answers in zerolayer's schema, against the server's own halves of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.inference_messages import message
from zerolayer.client.errors import BadReply, Refused
from zerolayer.client.request import Options, Question
from zerolayer.client.schema_form import GrpcForm, SchemaForm, encode
from zerolayer.errors import BeyondHorizon, BodyTooLarge, InvalidRequest, SlotsBusy, Unavailable
from zerolayer.wire.grpc import frame as prefixed
from zerolayer.wire.grpc import status_trailers
from zerolayer.wire.protobuf import delimited
from zerolayer.wire.protobuf_reply import error_message, failed, last, piece
from zerolayer.wire.schema import Account, FinishReason, Usage

HI = [{"role": "user", "content": "Hi é"}]
GenerateRequest = message("GenerateRequest")
END = piece((9,), b"c") + last(FinishReason.STOP, Usage(7, 3, 2), Account({"read": 3, "decode": 40}, "greedy", 16, 500))


def chat(**given) -> Question:
    return Question(Options("m", **given), HI)


def test_a_chat_is_a_message_that_googles_library_reads() -> None:
    read = GenerateRequest.FromString(encode(chat(max_tokens=5, temperature=0.7, seed=9, stop=("a", "b")), None))
    assert [(turn.role, turn.content.decode()) for turn in read.messages] == [(2, "Hi é")]
    assert (read.model, read.max_tokens, read.temperature, read.seed) == ("m", 5, 700_000, 9)
    assert (list(read.stop), read.stream) == (["a", "b"], True)


def test_what_was_not_said_is_not_there() -> None:
    read = GenerateRequest.FromString(encode(chat(), None))
    assert [
        name for name in ("temperature", "seed", "top_k") if name in {each.name for each, _ in read.ListFields()}
    ] == []


def test_a_temperature_of_zero_is_said() -> None:
    assert GenerateRequest.FromString(encode(chat(temperature=0.0), None)).HasField("temperature")


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_token_ids_are_little_endian_words(ids: list[int]) -> None:
    read = GenerateRequest.FromString(encode(Question(Options("m"), prompt="text"), ids))
    assert read.token_ids == b"".join(token_id.to_bytes(4, "little") for token_id in ids)


@pytest.mark.parametrize(
    "question",
    [
        Question(Options("m"), prompt="text that nobody tokenised"),
        Question(Options("m"), [{"role": "tool", "content": "5"}]),
        Question(Options("m"), [{"role": "user", "content": "a", "name": "b"}]),
        Question(Options("m"), [{"role": "user", "content": "half of a pair: \ud83d"}]),
        Question(Options("m"), HI * 17),
        Question(Options("m"), []),
        Question(Options("m", temperature=0.12345678), HI),
        Question(Options("m", max_tokens=0), HI),
        Question(Options("m", fills_cache=True), HI),
    ],
)
def test_what_the_schema_cannot_say_is_left_to_json(question: Question) -> None:
    assert encode(question, None) is None


@pytest.mark.parametrize(("form", "wrap"), [(SchemaForm(), delimited), (GrpcForm(), prefixed)])
@given(size=st.integers(1, 60))
def test_an_answer_is_read_however_it_is_cut(form, wrap, size: int) -> None:
    reader = form.reader("m")
    sent = wrap(piece((1,), "Hé".encode())) + wrap(piece((2,), b"")) + wrap(END)
    text = "".join(text for at in range(0, len(sent), size) for text in reader.push(sent[at : at + size]))
    assert text == "Héc"
    outcome = reader.outcome
    assert (outcome.model, outcome.finish_reason, outcome.program) == ("m", "stop", "greedy")
    assert (outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens) == (7, 3, 2)
    assert (outcome.stages.read, outcome.stages.decode, outcome.stages.glue_us) == (3, 40, 3)


def test_an_answer_without_its_end_is_none() -> None:
    reader = SchemaForm().reader("m")
    assert list(reader.push(delimited(piece((1,), b"a")))) == ["a"]
    assert reader.outcome is None


def test_a_stream_that_failed_says_why() -> None:
    with pytest.raises(Refused, match="too wide") as caught:
        list(SchemaForm().reader("m").push(delimited(failed(InvalidRequest("too wide")))))
    assert caught.value.error_code == "invalid_request"


def test_a_refusal_over_http_is_a_message_or_json() -> None:
    form = SchemaForm()
    head = form.head(429, {"retry-after-ms": "7", "x-should-retry": "true"}, {})
    told = form.refused(
        head, error_message(SlotsBusy("busy", retry_after_ms=7)), {"content-type": "application/x-protobuf"}, {}
    )
    assert (told.message, told.status_code, told.error_code, told.retry_after_ms) == ("busy", 429, "slots_busy", 7)
    json = form.refused(form.head(404, {}, {}), b'{"error":{"message":"no"}}', {"content-type": "application/json"}, {})
    assert (json.message, json.status_code) == ("no", 404)


def trailers(error) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in status_trailers(error)}


@pytest.mark.parametrize(
    ("error", "status", "wait_ms", "retry", "ticket"),
    [
        (SlotsBusy("come in {ms} ms", retry_after_ms=7, ticket="t1"), 429, 7, True, "t1"),
        (BeyondHorizon("never"), 429, None, False, None),
        (BodyTooLarge("long"), 429, None, False, None),
        (InvalidRequest("wrong: 50 %"), 400, None, False, None),
    ],
)
def test_a_status_of_grpc_says_what_http_would(error, status, wait_ms, retry, ticket) -> None:
    form, told = GrpcForm(), trailers(error)
    head = form.head(200, {"x-zl-load": "free=0;next_ms=7"}, told)
    assert (head.status, head.wait_ms, head.retry, head.ticket) == (status, wait_ms, retry, ticket)
    assert head.load.next_ms == 7
    assert form.refused(head, b"", {}, told).message == error.message


def test_a_server_that_drains_is_away_for_a_while() -> None:
    head = GrpcForm().head(200, {}, trailers(Unavailable("draining")))
    assert head.status == 503
    assert head.wait_ms > 0


def test_a_stream_of_grpc_that_ends_badly_is_refused() -> None:
    reader = GrpcForm().reader("m")
    list(reader.push(prefixed(piece((1,), b"a"))))
    with pytest.raises(Refused, match="never"):
        reader.end(trailers(BeyondHorizon("never")))


@given(st.binary(max_size=60), st.sampled_from([SchemaForm(), GrpcForm()]))
def test_no_bytes_break_the_reader(data: bytes, form) -> None:
    reader = form.reader("m")
    try:
        list(reader.push(data))
    except (BadReply, Refused):
        return
    assert reader.outcome is None or reader.outcome.model == "m"
