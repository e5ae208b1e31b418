"""Limits that ride in keys, on real sockets: what they count, what they give back, what a refusal says."""

from __future__ import annotations

import json

import pytest
from echo_service import Service, chat, expect_soon, post
from key_folder import ASK, bearer, stock

from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.identity import Quota


@pytest.fixture
def service(serve, keys) -> Service:
    return serve(slots=4, key_set=str(keys.folder / KEY_SET))


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
