"""gRPC with grpcio as the client: the health service, statuses, deadlines, cancellation, and methods of our own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest
from echo_service import Service, expect_soon
from http2_client import Http2Client

from zerolayer.errors import EngineFailed, SlotsBusy
from zerolayer.front.grpc import GrpcCall, Method

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"


@pytest.fixture
def service(serve) -> Service:
    return serve()


@pytest.fixture
def channel(service) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        yield channel


def offer(service: Service, path: str, method: Method) -> None:
    """Put a method into the running service's table."""
    service.on_loop(lambda: service.server.calls._methods.__setitem__(path, method))


def failure(call) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as raised:
        list(call) if hasattr(call, "__iter__") else call()
    return raised.value


def test_the_server_is_serving(channel):
    assert channel.unary_unary(CHECK)(b"") == SERVING
    assert channel.unary_unary(CHECK)(b"\x0a\x15grpc.health.v1.Health") == SERVING


def test_a_closed_server_is_not_serving(service, channel):
    service.on_loop(lambda: service.server.guard.close(EngineFailed("it stopped")))
    assert channel.unary_unary(CHECK)(b"") == NOT_SERVING


def test_a_service_that_is_not_here_is_not_found(channel):
    error = failure(lambda: channel.unary_unary(CHECK)(b"\x0a\x01x"))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "empty name" in error.details()


def test_bytes_that_are_no_message_are_an_invalid_argument(channel):
    assert failure(lambda: channel.unary_unary(CHECK)(b"\xff")).code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_method_is_unimplemented(channel):
    assert failure(lambda: channel.unary_unary("/a.B/C")(b"")).code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_compressed_message_is_unimplemented(channel):
    call = channel.unary_unary(CHECK)
    error = failure(lambda: call(b"\x0a\x7f" + b"x" * 127, compression=grpc.Compression.Gzip))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("encoding", "status", "accepted"),
    [({"grpc_encoding": "gzip"}, "12", "identity"), ({"grpc_encoding": "identity"}, "13", None), ({}, "13", None)],
    ids=["unknown encoding", "no encoding", "none named"],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_compressed_message_is_told_what_is_accepted_or_that_it_cannot_be_compressed(
    service, streaming, encoding, status, accepted
):
    """As compression.md of gRPC says: UNIMPLEMENTED with grpc-accept-encoding, else INTERNAL."""
    offer(service, "/t.T/Never", Method(lambda call, _message: call.finish(), streaming=streaming))
    with Http2Client(service.connect()) as client:
        body = b"\1\0\0\0\3\x1f\x8b\x08"
        stream = client.ask("POST", "/t.T/Never", body, content_type="application/grpc", te="trailers", **encoding)
        client.reply(stream)
        told = client.headers(stream)
    assert (told["grpc-status"], told.get("grpc-accept-encoding")) == (status, accepted)


def test_an_encoding_that_no_message_uses_is_no_fault(service):
    with Http2Client(service.connect()) as client:
        headers = {"content_type": "application/grpc", "te": "trailers", "grpc_encoding": "gzip"}
        assert client.reply(client.ask("POST", CHECK, b"\0\0\0\0\0", **headers)) == (200, b"\0\0\0\0\2" + SERVING)


def test_a_watcher_is_told_when_the_state_changes(service, channel):
    watch = channel.unary_stream(WATCH)(b"")
    assert next(watch) == SERVING
    service.on_loop(lambda: service.server.guard.close(EngineFailed("it stopped")))
    assert next(watch) == NOT_SERVING
    watch.cancel()
    expect_soon(lambda: service.on_loop(lambda: not service.server.grpc_health._watchers))


def test_an_unknown_service_can_be_watched(channel):
    watch = channel.unary_stream(WATCH)(b"\x0a\x01x")
    assert next(watch) == SERVICE_UNKNOWN
    watch.cancel()


def test_a_watcher_is_no_work(service, channel):
    watch = channel.unary_stream(WATCH)(b"")
    assert next(watch) == SERVING
    glue = service.server.glue
    before = service.on_loop(lambda: glue.busy_ns(time.monotonic_ns()))
    assert service.on_loop(lambda: glue.busy_ns(time.monotonic_ns())) == before
    watch.cancel()


def test_a_drain_ends_the_watchers(service, channel):
    watch = channel.unary_stream(WATCH)(b"")
    next(watch)
    service.on_loop(service.server.grpc_health.end)
    assert failure(watch).code() is grpc.StatusCode.UNAVAILABLE


def test_a_method_may_send_many_messages(service, channel):
    def count(call: GrpcCall, message: bytes | None) -> None:
        for number in range(3):
            call.send(bytes([number]))
        call.finish(message)

    offer(service, "/t.T/Count", Method(count))
    assert list(channel.unary_stream("/t.T/Count")(b"end")) == [b"\0", b"\1", b"\2", b"end"]


def test_a_method_may_take_many_messages(service, channel):
    def echo(call: GrpcCall, message: bytes | None) -> None:
        if message is None:
            call.finish()
        else:
            call.send(message.upper())

    offer(service, "/t.T/Echo", Method(echo, streaming=True))
    assert list(channel.stream_stream("/t.T/Echo")(iter([b"a", b"b" * 100_000, b"c"]))) == [b"A", b"B" * 100_000, b"C"]


def test_a_status_after_messages_comes_in_trailers(service, channel):
    def fail(call: GrpcCall, _message: bytes | None) -> None:
        call.send(b"one")
        call.fail(EngineFailed("the step failed: 100 % of it, é"))

    offer(service, "/t.T/Fail", Method(fail))
    replies = channel.unary_stream("/t.T/Fail")(b"")
    assert next(replies) == b"one"
    error = failure(replies)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "the step failed: 100 % of it, é"


def test_a_busy_server_pushes_back_by_the_millisecond(service, channel):
    def busy(_call: GrpcCall, _message: bytes | None) -> None:
        raise SlotsBusy("all slots are busy", retry_after_ms=77)

    offer(service, "/t.T/Busy", Method(busy))
    error = failure(lambda: channel.unary_unary("/t.T/Busy")(b""))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert ("grpc-retry-pushback-ms", "77") in [tuple(item) for item in error.trailing_metadata()]


def test_a_defect_is_internal_and_says_nothing(service, channel):
    def defect(_call: GrpcCall, _message: bytes | None) -> None:
        raise KeyError("secret")

    offer(service, "/t.T/Defect", Method(defect))
    error = failure(lambda: channel.unary_unary("/t.T/Defect")(b""))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert channel.unary_unary(CHECK)(b"") == SERVING


def test_a_call_that_is_cancelled_is_told_to_its_method(service, channel):
    gone: list[str] = []

    def wait(call: GrpcCall, _message: bytes | None) -> None:
        call.on_gone = lambda: gone.append("gone")
        call.send(b"begun")

    offer(service, "/t.T/Wait", Method(wait))
    call = channel.unary_stream("/t.T/Wait")(b"")
    next(call)
    call.cancel()
    expect_soon(lambda: gone == ["gone"])


def test_a_deadline_ends_the_call_on_the_server_too(service, channel):
    gone: list[int] = []

    def wait(call: GrpcCall, _message: bytes | None) -> None:
        call.on_gone = lambda: gone.append(call.deadline_ns)

    offer(service, "/t.T/Wait", Method(wait))
    error = failure(lambda: channel.unary_unary("/t.T/Wait")(b"", timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    expect_soon(lambda: len(gone) == 1)
    assert abs(gone[0] - time.monotonic_ns()) < 10_000_000_000


def test_a_message_over_the_limit_is_refused(service, channel):
    error = failure(lambda: channel.unary_unary(CHECK)(b"x" * (service.contract.limits.body_bytes + 1)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_many_calls_share_a_connection(service, channel):
    check = channel.unary_unary(CHECK)
    assert [future.result() for future in [check.future(b"") for _ in range(200)]] == [SERVING] * 200
    assert len(service.server.connections) == 1
