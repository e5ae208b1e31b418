"""Keys and limits on real sockets, with the stock clients: who is let in, who is not, and how soon that changes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anthropic
import grpc
import openai
import pytest
from echo_service import Service, chat, expect_soon, get, post, read_reply
from http2_client import Http2Client

from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.auth.signing import KeyFolder, Wish
from zerolayer.guard.auth.throttle import BURST
from zerolayer.guard.identity import Quota
from zerolayer.serve.running import _SWEEP_S

ASK = [{"role": "user", "content": "Say this."}]
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
]


class Keys(KeyFolder):
    """A folder of keys whose wall clock is the real one."""

    def key(self, tenant: str = "acme", days: float = 1, **members: object) -> str:
        now = int(time.time())
        return self.issue(Wish(tenant, now + int(days * 86_400), **members), now)[0]

    def void(self, key_id: bytes) -> None:
        now = int(time.time())
        self.revoke([key_id.hex()], [], now, now)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    folder = Keys(tmp_path / "keys")
    folder.create(int(time.time()))
    return folder


@pytest.fixture
def service(serve, keys) -> Service:
    return serve(slots=4, key_set=str(keys.folder / KEY_SET))


def bearer(key: str) -> str:
    return f"authorization: Bearer {key}"


def stock(service: Service, key: str, **given: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{service.port}/v1", api_key=key, **{"max_retries": 0, **given})


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
        expect_soon(lambda: status() == 401)
    until_seen = looks.seen.index(True, before) - before + 1  # one may have been under way
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


def test_of_a_limited_key_the_limit_passes_and_the_headers_count_it_down(service, keys):
    key = keys.key(quota=Quota(requests_per_minute=3, tokens_per_minute=1000))
    replies = [service.ask(chat("hi", bearer(key))) for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert [reply.headers["x-ratelimit-remaining-requests"] for reply in replies] == ["2", "1", "0", "0"]
    assert replies[0].headers["x-ratelimit-limit-tokens"] == "1000"
    assert 15_000 < int(replies[3].headers["retry-after-ms"]) <= 20_000
    assert replies[3].error["code"] == "rate_limit_exceeded"


def test_anthropics_clients_get_their_own_headers(service, keys):
    key = keys.key(quota=Quota(requests_per_minute=3))
    body = {"model": "echo", "max_tokens": 8, "messages": ASK}
    reply = service.ask(post("/v1/messages", body, f"x-api-key: {key}", "anthropic-version: 2023-06-01"))
    assert reply.status == 200
    assert reply.headers["anthropic-ratelimit-requests-remaining"] == "2"
    assert reply.headers["anthropic-ratelimit-requests-reset"].endswith("Z")


def test_the_stock_client_waits_as_long_as_a_limit_asks_it_to_and_is_served(service, keys):
    key = keys.key(quota=Quota(requests_per_minute=120))
    with stock(service, key, max_retries=2) as client:
        for _ in range(122):
            assert client.chat.completions.create(model="echo", messages=ASK).usage.total_tokens == 20


def test_streams_count_as_much_as_whole_replies(service, keys):
    key = keys.key(quota=Quota(tokens_per_minute=6000))

    def left() -> int:
        identity = service.server.keyring.authenticator.admit(key.encode(), "test")
        return service.on_loop(lambda: service.server.guard.budgets.levels(identity)[1].left)

    for stream in (False, True):
        reply = service.ask(chat("abcdefgh" * 20, bearer(key), stream=stream, max_tokens=300))
        assert reply.status == 200
    used = json.loads(service.ask(chat("abcdefgh" * 20, bearer(key))).body)["usage"]["total_tokens"]
    assert 6000 - 3 * used <= left() <= 6000 - 3 * used + 600  # what drained meanwhile


@pytest.mark.parametrize("phase", ["before", "within"])
def test_a_client_that_leaves_gives_back_what_it_did_not_use(service, keys, phase):
    key = keys.key(quota=Quota(concurrent=1, tokens_per_minute=10_000))
    identity = service.server.keyring.authenticator.admit(key.encode(), "test")
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("abcdefghij", bearer(key), max_tokens=400, stream=True))
        expect_soon(lambda: service.running() == 1)
        if phase == "within":
            service.step(3)
        assert service.ask(chat("hi", bearer(key))).status == 429
    expect_soon(lambda: service.running() == 0)
    service.step(1000)
    used = 10_000 - service.on_loop(lambda: service.server.guard.budgets.levels(identity)[1].left)
    assert used <= (0 if phase == "before" else 11 + 3)
    assert service.ask(chat("hi", bearer(key))).status == 200


def test_a_refusal_for_lack_of_slots_uses_no_budget(serve, keys):
    service = serve(slots=1, key_set=str(keys.folder / KEY_SET))
    key = keys.key(quota=Quota(requests_per_minute=5))
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("hi", bearer(keys.key()), stream=True))
        expect_soon(lambda: service.running() == 1)
        for _ in range(10):
            assert service.ask(chat("hi", bearer(key))).error["code"] in ("slots_busy", "beyond_horizon")
        service.step(1000)
    service.step(100_000)
    replies = []  # more refusals, where the time that was told is not over yet
    expect_soon(lambda: replies.append(service.ask(chat("hi", bearer(key)))) or replies[-1].status == 200)
    assert replies[-1].headers["x-ratelimit-remaining-requests"] == "4"


def test_bookings_belong_to_the_key_and_not_to_the_address(serve, keys):
    service = serve(slots=1, key_set=str(keys.folder / KEY_SET))
    mine, other = keys.key("a"), keys.key("b")
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("hi", bearer(mine), stream=True))
        expect_soon(lambda: service.running() == 1)
        tickets = {
            service.ask(chat("same", bearer(key), "x-stainless-retry-count: 0")).headers.get("x-zl-ticket")
            for key in (mine, other)
        }
        assert len(tickets) == 2
        credentials = service.on_loop(lambda: {each.credential for each in service.server.admission.tickets})
        service.step(1000)
    assert credentials == {service.server.keyring.authenticator.known(key.encode()).key_id for key in (mine, other)}


def test_budgets_go_on_after_a_restart(serve, keys, tmp_path):
    key = keys.key(quota=Quota(requests_per_minute=2))
    flags = {"key_set": str(keys.folder / KEY_SET)}
    first = serve(**flags, tenants={"state": str(tmp_path / "state")})
    assert [first.ask(chat("hi", bearer(key))).status for _ in range(2)] == [200, 200]
    first.close()
    second = serve(**flags, tenants={"state": str(tmp_path / "state")})
    assert second.ask(chat("hi", bearer(key))).status == 429


@pytest.mark.parametrize("stream", [False, True])
def test_several_answers_are_one_request_and_all_their_tokens(service, keys, stream):
    key = keys.key(quota=Quota(requests_per_minute=10, tokens_per_minute=10_000, concurrent=1))
    identity = service.server.keyring.authenticator.admit(key.encode(), "test")
    reply = service.ask(
        chat("abcd", bearer(key), n=2, stream=stream, stream_options={"include_usage": True} if stream else None)
    )
    usage = (reply.events[-2] if stream else reply.json)["usage"]
    account = service.on_loop(lambda: service.server.guard.budgets._accounts[identity.key_id])
    assert (account.running, account.held_tokens) == (0, 0)
    left = service.on_loop(lambda: service.server.guard.budgets.levels(identity))
    assert left[0].left == 9
    assert 10_000 - usage["total_tokens"] <= left[1].left <= 10_000 - usage["total_tokens"] + 500


def test_a_client_that_leaves_several_answers_gives_its_place_back(service, keys):
    key = keys.key(quota=Quota(concurrent=1))
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("abcdefghij", bearer(key), n=2, stream=True))
        expect_soon(lambda: service.running() == 2)
        service.step(3)
    expect_soon(lambda: service.running() == 0)
    service.step(1000)
    assert service.ask(chat("hi", bearer(key))).status == 200


def test_compute_is_charged_as_the_reply_tells_it(service, keys):
    key = keys.key(quota=Quota(compute_us_per_day=10**9))
    told = sum(service.ask(chat("hi", bearer(key))).json["zerolayer"]["compute_us"] for _ in range(3))
    identity = service.server.keyring.authenticator.known(key.encode())
    used = service.on_loop(lambda: service.server.guard.budgets._accounts[identity.key_id].used_us)
    assert used == told > 0


def test_a_prepaid_budget_that_is_used_up_says_that_waiting_cannot_help(service, keys):
    reply = service.ask(chat("hi", bearer(keys.key(quota=Quota(compute_us_per_day=1)))))
    assert (reply.status, reply.error["code"]) == (429, "insufficient_quota")
    assert reply.headers["x-should-retry"] == "false"
