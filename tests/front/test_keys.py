"""Keys on real sockets, with the stock clients: who is let in, who is not, and how soon that changes."""

from __future__ import annotations

import time

import anthropic
import grpc
import openai
import pytest
from echo_service import Service, chat, expect_soon, get, post, read_reply
from http2_client import Http2Client
from key_folder import ASK, bearer, stock

from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.auth.throttle import BURST
from zerolayer.guard.identity import Quota
from zerolayer.serve.running import _SWEEP_S

PATHS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/echo"),
    ("GET", "/v1/models/echo/vocabulary"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/generate"),
    ("POST", "/v1/count_tokens"),
    ("POST", "/v1/messages"),
    ("GET", "/"),
    ("GET", "/metrics"),
    ("GET", "/nowhere"),
    ("DELETE", "/v1/models"),
    ("OPTIONS", "/v1/models"),
    ("OPTIONS", "*"),
]


@pytest.fixture
def service(serve, keys) -> Service:
    return serve(slots=4, key_set=str(keys.folder / KEY_SET))


def test_the_stock_client_is_let_in_by_its_key(service, keys):
    with stock(service, keys.key()) as client:
        assert client.chat.completions.create(model="echo", messages=ASK).choices[0].message.content == "Say this."


@pytest.mark.parametrize("header", ["authorization: Bearer {}", "authorization: bearer {}", "x-api-key: {}"])
def test_the_key_may_come_in_either_header(service, keys, header):
    assert service.ask(get("/v1/models", header.format(keys.key()))).status == 200


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_every_path_is_closed_without_a_key(service, method, path):
    reply = service.ask(get(path, "content-length: 0", method=method))
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
def test_health_is_open(service, path):
    assert service.ask(get(path)).status == 200


def test_a_wrong_key_is_the_stock_clients_authentication_error(service):
    with stock(service, "sk-wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
        client.models.list()
    assert caught.value.code == "invalid_api_key"


def test_an_expired_key_is_refused(service, keys):
    with stock(service, keys.key(days=-1)) as client, pytest.raises(openai.AuthenticationError, match="expired"):
        client.models.list()


def test_a_model_that_the_key_may_not_use_is_forbidden(serve, keys):
    key = keys.key(models=("other",))
    service = serve(key_set=str(keys.folder / KEY_SET))
    with stock(service, key) as client, pytest.raises(openai.PermissionDeniedError) as caught:
        client.chat.completions.create(model="echo", messages=ASK)
    assert caught.value.param == "model"


@pytest.mark.parametrize("header", ["x: y", "anthropic-version: 2023-06-01"])
def test_a_key_is_told_only_of_models_that_it_may_use(serve, keys, header):
    issued = [keys.key(models=models) for models in ((), ("alias",), ("other",))]
    service = serve(key_set=str(keys.folder / KEY_SET), aliases=("alias",))

    def told(key: str) -> list[str]:
        names = [card["id"] for card in service.ask(get("/v1/models", bearer(key), header)).json["data"]]
        for name in ("echo", "alias"):
            status = service.ask(get(f"/v1/models/{name}", bearer(key), header)).status
            assert status == (200 if name in names else 404)
        return names

    assert [told(key) for key in issued] == [["echo", "alias"], ["alias"], []]


def test_where_any_name_will_do_a_key_is_told_its_own(serve, keys):
    key = keys.key(models=("gpt-4o-mini",))
    service = serve(key_set=str(keys.folder / KEY_SET), aliases=("*",))
    listed = service.ask(get("/v1/models", bearer(key)))
    assert [card["id"] for card in listed.json["data"]] == ["gpt-4o-mini"]


def test_an_error_has_anthropics_shape_for_anthropics_clients(service):
    reply = service.ask(post("/v1/messages", {}, "anthropic-version: 2023-06-01", "x-api-key: sk-wrong"))
    assert reply.status == 401
    assert reply.json["type"] == "error"
    assert reply.json["error"]["type"] == "authentication_error"
    assert reply.json["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]


def test_anthropics_stock_client_is_let_in_refused_and_limited(service, keys):
    key = keys.key(quota=Quota(requests_per_minute=1))
    say = {"model": "echo", "max_tokens": 16, "messages": ASK}

    def client(key: str) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=f"http://127.0.0.1:{service.port}", api_key=key, max_retries=0)

    with client(key) as good, client("sk-wrong") as wrong:
        assert good.messages.create(**say).content[0].text == "Say this."
        with pytest.raises(anthropic.RateLimitError) as limited:
            good.messages.create(**say)
        assert int(limited.value.response.headers["retry-after-ms"]) > 50_000
        with pytest.raises(anthropic.AuthenticationError):
            wrong.messages.create(**say)


def test_a_request_is_refused_before_its_body_is_sent(service):
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    assert service.ask(head + b"content-length: 1000000\r\n\r\n").status == 401


def test_grpc_reads_the_key_from_the_metadata(service, keys):
    address = f"127.0.0.1:{service.port}"
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/zerolayer.v1.Inference/Health")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert call(b"", metadata=(("authorization", f"Bearer {keys.key()}"),))
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"


class Looks:
    """What the server saw each time it looked whether its key files have changed."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[bool] = []
        files = service.server.keyring._files
        changed = files.changed

        def noted() -> bool:
            self.seen.append(changed())
            return self.seen[-1]

        monkeypatch.setattr(files, "changed", noted)


@pytest.mark.parametrize("how", ["key", "tenant", "signer"])
def test_what_is_revoked_is_refused_within_a_second_on_an_open_http2_connection(service, keys, monkeypatch, how):
    key, now = keys.key(), int(time.time())
    looks = Looks(service, monkeypatch)
    with Http2Client(service.connect()) as peer:

        def status() -> int:
            stream_id = peer.ask("GET", "/v1/models", authorization=f"Bearer {key}")
            return peer.reply(stream_id)[0]

        assert status() == 200
        before = len(looks.seen)
        if how == "key":
            keys.void(service.server.keyring.authenticator.known(key.encode()).key_id)
        elif how == "tenant":
            keys.revoke([], ["acme"], now + 1, now)
        else:
            keys.rotate(0, now)  # without an overlap: what the last signing key signed counts no more
        written = len(looks.seen)
        expect_soon(lambda: status() == 401)
    until_seen = max(0, looks.seen.index(True, before) - written) + 1  # one may have been under way
    assert until_seen * _SWEEP_S <= 0.5  # and reading takes milliseconds, off the loop


def test_a_revoked_key_is_refused_on_an_open_grpc_channel(service, keys):
    key = keys.key()
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
        health = channel.unary_unary("/zerolayer.v1.Inference/Health")

        def refused() -> bool:
            try:
                health(b"", metadata=(("authorization", f"Bearer {key}"),))
            except grpc.RpcError as error:
                return error.code() is grpc.StatusCode.UNAUTHENTICATED
            return False

        assert not refused()
        keys.void(service.server.keyring.authenticator.known(key.encode()).key_id)
        expect_soon(refused)


def test_a_head_that_comes_again_is_asked_for_its_key_again(service, keys):
    key = keys.key()
    with service.connect() as client:

        def status() -> int:
            client.sendall(get("/v1/models", bearer(key)))
            return read_reply(client).status

        assert [status() for _ in range(3)] == [200, 200, 200]
        authenticator = service.server.keyring.authenticator
        key_id = authenticator.known(key.encode()).key_id
        keys.void(key_id)
        expect_soon(lambda: key_id in authenticator._revoked)
        assert status() == 401


def test_a_preflight_that_comes_again_is_answered_again(serve, keys):
    service = serve(key_set=str(keys.folder / KEY_SET), cors="https://page.example")
    asked = get("/v1/models", "origin: https://page.example", "access-control-request-method: GET", method="OPTIONS")
    with service.connect() as client:
        for _ in range(3):
            client.sendall(asked)
            assert read_reply(client).status == 204


def test_a_new_signing_key_counts_without_a_restart(service, keys):
    keys.rotate(1000, int(time.time()))
    key = keys.key()
    expect_soon(lambda: service.ask(get("/v1/models", bearer(key))).status == 200)


def test_a_flood_of_wrong_keys_costs_few_verifications_and_keeps_nobody_else_waiting(service, keys):
    good = keys.key()
    with Http2Client(service.connect()) as peer:

        def status(key: str) -> int:
            return peer.reply(peer.ask("GET", "/v1/models", x_api_key=key))[0]

        assert status(good) == 200
        assert {status(f"{good[:-4]}{number:04d}") for number in range(3 * BURST)} <= {401, 429}
        assert status(good) == 200
    assert service.server.keyring.authenticator.counts.verified <= 1 + 2 * BURST


def test_no_key_appears_in_a_reply_or_a_log(service, keys, caplog):
    key = keys.key(quota=Quota(requests_per_minute=1))
    wrong = f"{key[:-4]}0000"
    for shown in (key, key, wrong, key[:-1]):
        reply = service.ask(chat("hi", bearer(shown)))
        assert shown[7:30] not in str(reply.headers) + reply.body.decode()
    assert key[7:30] not in caplog.text


def test_without_a_key_set_no_key_is_asked_for_and_any_is_taken(serve):
    with stock(serve(), "whatever") as client:
        assert client.models.list().data[0].id == "echo"
