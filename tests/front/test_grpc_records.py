"""A gRPC call is a request like any other: it has one record, before its trailers, and is charged to its key."""

from __future__ import annotations

import time

import grpc
import pytest
from echo_service import expect_soon

from wire.inference_messages import message
from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.auth.signing import KeyFolder, Wish
from zerolayer.guard.identity import Quota
from zerolayer.guard.ledger.record import Entry, Flag, Outcome
from zerolayer.guard.ledger.segment import Chain

GenerateRequest, GenerateReply = message("GenerateRequest"), message("GenerateReply")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def service(serve, folder):
    return serve(ledger=str(folder), slots=2)


@pytest.fixture
def generate(service):
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        yield calls(channel)


def calls(channel: grpc.Channel) -> grpc.UnaryStreamMultiCallable:
    serialise = GenerateRequest.SerializeToString
    return channel.unary_stream("/zerolayer.v1.Inference/Generate", serialise, GenerateReply.FromString)


def ask(text: str, **fields: object):
    return GenerateRequest(model="echo", messages=[{"role": 2, "content": text.encode()}], **fields)


def entries(folder):
    return [record for link in Chain(folder) if isinstance(record := link.record(), Entry)]


def test_a_call_that_came_whole_has_its_record(generate, folder):
    replies = list(generate(ask("hello")))
    (entry,) = entries(folder)  # read at once: nothing is waited for
    assert (entry.route, entry.outcome, entry.status, entry.code) == (b"grpc.generate", Outcome.FINISHED, 200, b"stop")
    assert (entry.prompt_tokens, entry.completion_tokens) == (6, 6)
    assert entry.flags == Flag.STREAMED
    assert replies[-1].account.compute_us == entry.core_ns // 1000 > 0


def test_a_call_that_is_refused_for_good_is_recorded_as_refused(generate, folder):
    with pytest.raises(grpc.RpcError):
        list(generate(ask("x", max_tokens=1_000_000)))
    (entry,) = entries(folder)
    assert (entry.route, entry.outcome, entry.code) == (b"grpc.generate", Outcome.REFUSED, b"invalid_request")


def test_a_call_that_is_cancelled_is_recorded_with_what_it_used(service, generate, folder):
    service.hold_steps()
    call = generate(ask("hello"))
    expect_soon(lambda: service.running() == 1)
    service.step(1)
    next(call)
    call.cancel()
    expect_soon(lambda: len(entries(folder)) == 1)
    (entry,) = entries(folder)
    assert (entry.outcome, entry.prompt_tokens, entry.completion_tokens) == (Outcome.ABORTED, 6, 1)


def test_a_call_belongs_to_the_tenant_of_its_key(serve, folder, tmp_path):
    keys, now = KeyFolder(tmp_path / "keys"), int(time.time())
    keys.create(now)
    key, claims = keys.issue(Wish("acme", now + 1000, Quota(compute_us_per_day=10**9)), now)
    service = serve(ledger=str(folder), key_set=str(keys.folder / KEY_SET))
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        list(calls(channel)(ask("hello"), metadata=(("authorization", f"Bearer {key}"),)))
    (entry,) = entries(folder)
    (account,) = service.on_loop(service.server.guard.budgets.accounts)
    assert (entry.tenant, entry.key_id) == (b"acme", claims.key_id)
    assert account.used_us == entry.core_ns // 1000 > 0
