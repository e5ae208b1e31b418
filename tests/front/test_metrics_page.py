"""What a scrape of a running server finds: every metric that is promised, with its labels, after real traffic."""

from __future__ import annotations

import re
import time

import pytest
from echo_service import Service, chat, get, post, read_reply

from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.auth.signing import KeyFolder, Wish
from zerolayer.guard.identity import Quota

SAMPLE = re.compile(r"^([a-z_]+:?[a-z_0-9]+)\{(.*)\} (\S+)$", re.MULTILINE)


def samples(service: Service) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values by name and labels, the model's name left out."""
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for name, labels, value in SAMPLE.findall(page):
        told = tuple(each for each in re.findall(r'(\w+)="([^"]*)"', labels) if each[0] != "model_name")
        found.setdefault(name, {})[told] = float(value)
    return found


def values(service: Service, name: str, label: str) -> set[str]:
    return {dict(labels)[label] for labels in samples(service)[name]}


@pytest.fixture
def busy(serve) -> Service:
    """One request served, one refused for its model, one client gone."""
    service = serve(slots=2)
    assert service.ask(chat("hello")).status == 200
    assert service.ask(chat("hello", model="nobody")).status == 404
    return service


@pytest.mark.parametrize(
    ("name", "label", "known"),
    [
        ("zerolayer:stage_seconds_total", "stage",
         {"read", "parse", "guard", "tokenise", "wait", "prefill", "decode", "frame", "write"}),
        ("zerolayer:booking_total", "outcome", {"kept", "early", "late", "no_show", "broken"}),
        ("zerolayer:promise_total", "kept", {"true", "false"}),
        ("zerolayer:abandoned_total", "phase", {"refused", "prefill", "decode"}),
        ("zerolayer:slots", "state", {"free", "running", "changing"}),
        ("zerolayer:refused_total", "reason", {"model_not_found"}),
        ("zerolayer:program_steps_total", "program", {"plain"}),
        ("zerolayer:compute_microseconds_total", "tenant", {"_idle", "_anyone"}),
        ("zerolayer:glue_memory_bytes", "component",
         {"connections", "requests", "calendar", "budgets", "keys", "answers", "ledger", "programs", "recorder",
          "metrics", "text", "tables", "process"}),
    ],
)  # fmt: skip
def test_a_metric_has_its_labels(busy, name, label, known):
    assert values(busy, name, label) == known


@pytest.mark.parametrize(
    "name",
    [
        "zerolayer:deadline_slack_seconds_bucket", "zerolayer:booking_lateness_seconds_bucket",
        "zerolayer:refusal_seconds_bucket", "zerolayer:kv_fragmentation_ratio", "zerolayer:glue_ratio",
        "zerolayer:context_switches_per_100_requests", "gen_ai_server_request_duration_seconds_count",
        "gen_ai_server_time_to_first_token_seconds_count", "gen_ai_server_time_per_output_token_seconds_count",
    ],
)  # fmt: skip
def test_a_metric_is_there(busy, name):
    assert name in samples(busy)


def test_memory_by_component_and_the_engines_sum_to_that_of_the_process(busy):
    found = samples(busy)
    glue = sum(found["zerolayer:glue_memory_bytes"].values())
    engine = found["zerolayer:engine_memory_bytes"][()]
    assert glue + engine == found["zerolayer:resident_bytes"][()]


def test_the_memory_of_connections_grows_with_them(busy):
    def held() -> float:
        return samples(busy)["zerolayer:glue_memory_bytes"][(("component", "connections"),)]

    before = held()
    clients = [busy.connect() for _ in range(50)]
    for client in clients:
        client.sendall(get("/v1/models"))
        assert read_reply(client).status == 200
    assert held() > before + 50 * 500
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("request_bytes", "limit"),
    [
        (chat("hello", max_tokens=100_000), "max_tokens"),
        (chat("hello", temperature=5), "temperature"),
        (chat("hello", n=50), "n"),
        (chat("hello", stop=["a"] * 9), "stop"),
        (post("/v1/chat/completions", b" " * (2 << 20)), "body_bytes"),
        (chat("hello " * 80, max_tokens=400), "slot_tokens"),
        (chat("hello " * 2000), "slot_tokens"),
    ],
)
def test_a_limit_that_is_met_is_counted_as_refused(serve, request_bytes, limit):
    service = serve()
    assert 400 <= service.ask(request_bytes).status < 500
    assert samples(service)["zerolayer:limit_total"] == {(("limit", limit), ("action", "refused")): 1}


@pytest.mark.parametrize(("member", "value"), [("max_tokens", 100_000), ("temperature", 5)])
def test_a_value_that_is_moved_into_its_limit_is_counted_as_clamped(serve, member, value):
    service = serve(section={"outside": "clamp", "max_tokens": 100})
    assert service.ask(chat("hello", **{member: value})).status == 200
    assert samples(service)["zerolayer:limit_total"] == {(("limit", member), ("action", "clamped")): 1}


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        (Quota(requests_per_minute=1), "requests_per_minute"),
        (Quota(tokens_per_minute=20), "tokens_per_minute"),
        (Quota(compute_us_per_day=1), "compute_us_per_day"),
    ],
)
def test_a_limit_of_a_key_is_counted_too(serve, tmp_path, quota, limit):
    folder, now = KeyFolder(tmp_path / "keys"), int(time.time())
    folder.create(now)
    service = serve(key_set=str(folder.folder / KEY_SET))
    key = folder.issue(Wish("acme", now + 1000, quota=quota), now)[0]
    for _ in range(2):
        service.ask(chat("hello", f"authorization: Bearer {key}", max_tokens=64))
    assert samples(service)["zerolayer:limit_total"][(("limit", limit), ("action", "refused"))] >= 1


def test_of_many_tenants_a_hundred_have_a_label_and_the_rest_share_one(serve, tmp_path):
    folder, now = KeyFolder(tmp_path / "keys"), int(time.time())
    folder.create(now)
    service = serve(key_set=str(folder.folder / KEY_SET))
    for number in range(105):
        key = folder.issue(Wish(f"t{number:03}", now + 1000), now)[0]
        assert service.ask(chat("a", f"authorization: Bearer {key}", max_tokens=1)).status == 200
    found = samples(service)
    spent = found["zerolayer:compute_microseconds_total"]
    tenants = {dict(labels)["tenant"] for labels in spent}
    assert tenants == {"_idle", "_other", *[f"t{number:03}" for number in range(100)]}
    whole = found["zerolayer:accounted_microseconds_total"][()] * found["zerolayer:engine_cores"][()]
    assert sum(spent.values()) == pytest.approx(whole)
