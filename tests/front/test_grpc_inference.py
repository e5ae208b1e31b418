"""``zerolayer.v1.Inference`` over gRPC: grpcio calls it, Google's protobuf reads it."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from echo_service import Service, expect_soon

from wire.inference_messages import message
from zerolayer.client.service_config import SERVICE_CONFIG
from zerolayer.errors import EngineFailed

SERVICE = "/zerolayer.v1.Inference/"
GenerateRequest, GenerateReply = message("GenerateRequest"), message("GenerateReply")
CountTokensReply, HealthReply, HealthRequest = (
    message("CountTokensReply"),
    message("HealthReply"),
    message("HealthRequest"),
)


class Stub:
    """What a generated stub would be."""

    def __init__(self, channel: grpc.Channel) -> None:
        serialise = GenerateRequest.SerializeToString
        self.generate = channel.unary_stream(f"{SERVICE}Generate", serialise, GenerateReply.FromString)
        self.count = channel.unary_unary(f"{SERVICE}CountTokens", serialise, CountTokensReply.FromString)
        self.health = channel.unary_unary(f"{SERVICE}Health", HealthRequest.SerializeToString, HealthReply.FromString)


@pytest.fixture
def service(serve) -> Service:
    return serve(slots=2)


@pytest.fixture
def stub(service) -> Iterator[Stub]:
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        yield Stub(channel)


def ask(text: str, **fields: object):
    return GenerateRequest(model="echo", messages=[{"role": 2, "content": text.encode()}], **fields)


def test_a_message_a_step_and_the_account_in_the_last(stub):
    replies = list(stub.generate(ask("Hello")))
    assert b"".join(reply.text for reply in replies) == b"Hello"
    assert [reply.finish_reason for reply in replies] == [0] * 5 + [1]
    assert replies[-1].usage.completion_tokens == 6


def test_tokens_can_be_counted(stub):
    assert stub.count(ask("abc")).prompt_tokens == 4


def test_health_tells_the_free_slots(stub):
    assert stub.health(HealthRequest()).free_slots == 2


def test_a_bad_request_is_an_invalid_argument(stub):
    with pytest.raises(grpc.RpcError) as raised:
        list(stub.generate(ask("x", max_tokens=1_000_000)))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_limits_are_read_from_metadata_whose_names_have_no_x(stub):
    replies = list(stub.generate(ask("abc"), metadata=[("zl-deadline-ms", "1500")]))
    assert replies[-1].account.deadline_ms == 1500


@pytest.mark.parametrize("name", ["zl-vocabulary", "x-zl-vocabulary"])
def test_ids_of_another_vocabulary_are_refused_and_not_misread(stub, name):
    with pytest.raises(grpc.RpcError) as raised:
        list(stub.generate(ask("abc"), metadata=[(name, '"another"')]))
    assert raised.value.code() is grpc.StatusCode.ABORTED


def test_a_call_that_was_refused_is_booked_and_the_same_call_is_served_at_its_time(service):
    service.hold_steps()
    options = [("grpc.service_config", SERVICE_CONFIG)]
    with grpc.insecure_channel(f"127.0.0.1:{service.port}", options=options) as channel:
        stub = Stub(channel)
        running = [stub.generate(ask(text)) for text in ("abc", "abd")]
        expect_soon(lambda: service.running() == 2)
        waiting = stub.generate(ask("abe"))
        expect_soon(lambda: service.on_loop(lambda: len(service.server.slots.bookings)) == 1)
        service.step(1_000)
        assert b"".join(reply.text for reply in waiting) == b"abe"
        assert all(list(call) for call in running)
    assert service.on_loop(lambda: service.server.admission.attendance.kept) == 1


def test_a_busy_server_pushes_back(service, stub):
    service.hold_steps()
    running = [stub.generate(ask("abc")) for _ in range(2)]
    expect_soon(lambda: service.running() == 2)
    with pytest.raises(grpc.RpcError) as raised:
        list(stub.generate(ask("x")))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(dict(raised.value.trailing_metadata())["grpc-retry-pushback-ms"]) >= 1
    service.step(100)
    assert [len(list(call)) for call in running] == [4, 4]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_call_that_ends_early_frees_its_slot(service, stub, how):
    service.hold_steps()
    call = stub.generate(ask("abc"), timeout=0.3 if how == "deadline" else None)
    expect_soon(lambda: service.running() == 1)
    if how == "cancel":
        call.cancel()
    expect_soon(lambda: service.running() == 0)
    service.step(2)
    expect_soon(lambda: service.free_slots() == 2)


def test_a_step_that_fails_is_told_in_the_trailers(service, stub):
    service.hold_steps()
    call = stub.generate(ask("abc"))
    expect_soon(lambda: service.running() == 1)
    service.step(2)
    assert next(call).text == b"a"
    service.engine.broken = EngineFailed("a step failed; send the request again")
    service.step(100)
    with pytest.raises(grpc.RpcError) as raised:
        list(call)
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert raised.value.details() == "a step failed; send the request again"
