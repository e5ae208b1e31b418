"""Server reflection, asked as grpcurl asks; the answers are read by Google's protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from google.protobuf import descriptor_pb2

from zerolayer.wire.protobuf import BYTES, Fields, message_field, read_fields

FILES, SERVICES, ERROR = 4, 6, 7


@pytest.fixture(params=["v1", "v1alpha"])
def ask(serve, request) -> Iterator[Callable[..., list[Fields]]]:
    """Send requests on one call; the fields of each answer."""
    with grpc.insecure_channel(f"127.0.0.1:{serve().port}") as channel:
        call = channel.stream_stream(f"/grpc.reflection.{request.param}.ServerReflection/ServerReflectionInfo")
        yield lambda *requests: [fields_of(answer) for answer in call(iter(requests))]


def fields_of(message: bytes) -> Fields:
    fields: Fields = {}
    read_fields(message, 0, len(message), fields, frozenset())
    return fields


def test_services_are_listed(ask):
    (answer,) = ask(message_field(7, b""))
    listed = answer[SERVICES << 3 | BYTES]
    assert b"zerolayer.v1.Inference" in listed
    assert b"grpc.health.v1.Health" in listed


@pytest.mark.parametrize(
    ("question", "service"),
    [
        (message_field(3, b"zerolayer/v1/inference.proto"), "Inference"),
        (message_field(4, b"zerolayer.v1.Inference"), "Inference"),
        (message_field(4, b"zerolayer.v1.Inference.Generate"), "Inference"),
        (message_field(4, b"zerolayer.v1.GenerateRequest"), "Inference"),
        (message_field(3, b"grpc/health/v1/health.proto"), "Health"),
        (message_field(4, b"grpc.health.v1.Health"), "Health"),
        (message_field(4, b"grpc.health.v1.HealthCheckResponse.ServingStatus"), "Health"),
    ],
)
def test_what_is_listed_is_described(ask, question, service):
    (answer,) = ask(question)
    file = fields_of(answer[FILES << 3 | BYTES])[1 << 3 | BYTES]
    assert descriptor_pb2.FileDescriptorProto.FromString(file).service[0].name == service


def test_a_question_is_short(ask):
    """Streamed calls hold what they have of a question for as long as they last."""
    with pytest.raises(grpc.RpcError) as refused:
        ask(message_field(4, b"x" * 5000))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("question", [message_field(3, b"no.proto"), message_field(4, b"zerolayer.v1.Nothing")])
def test_what_is_not_here_is_not_found(ask, question):
    (answer,) = ask(question)
    assert fields_of(answer[ERROR << 3 | BYTES])[1 << 3] == 5


def test_a_call_may_ask_many_questions_and_one_of_them_nonsense(ask):
    answers = ask(message_field(7, b""), b"", message_field(4, b"zerolayer.v1.Inference"))
    assert [
        next(number for number in (FILES, SERVICES, ERROR) if number << 3 | BYTES in answer) for answer in answers
    ] == [
        SERVICES,
        ERROR,
        FILES,
    ]
