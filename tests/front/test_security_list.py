"""What other inference servers and gateways were attacked by: ``ROWS`` has the tests of each row of that list.

Those of the service as a whole are here; the others stand beside what they test.
"""

from __future__ import annotations

import ast
import ipaddress
import json
import logging
import re
import socket
import tomllib
from pathlib import Path

import pytest
from echo_service import Service, chat, get, post

from reference.listed_tests import not_there

HERE = "front/test_security_list.py::"
ROWS: dict[int, list[str]] = {
    1: [  # no template of a client's, and the model's own in a sandbox
        HERE + "test_1_a_client_cannot_send_a_chat_template",
        "text/test_jinja_sandbox.py::test_a_hostile_template_only_fails",
        "text/test_jinja_sandbox.py::test_output_is_limited",
    ],
    2: [HERE + "test_2_everything_is_capped_before_it_costs_anything"],
    3: [HERE + "test_3_no_number_may_be_negative_that_must_not"],
    4: [  # grammars are bounded in time, size and number, and their compiler is not the client's to choose
        "text/test_grammar.py::test_a_heavy_schema_is_compiled_or_refused_within_its_limits",
        "text/test_json_schema_keywords.py::test_a_hostile_schema_costs_little_and_its_own_refusal",
        "text/test_grammar.py::test_only_the_grammars_used_last_are_kept",
        "text/test_grammar.py::test_a_client_cannot_change_how_schemas_are_compiled",
        "front/test_tools.py::test_schemas_are_compiled_on_a_thread_of_their_own_and_once",
    ],
    5: [  # prompts are kept apart by tenant, and no tenant fills the cache
        "model/test_prefix_cache.py::test_another_salt_never_sees_a_prefix",
        "model/test_prefix_cache.py::test_one_salt_fills_at_most_its_share",
        "front/test_tenants_apart.py::test_prompts_are_kept_under_the_salt_of_tenant_or_group",
        "front/test_tenants_apart.py::test_a_sharing_group_is_found_across_its_tenants_and_not_outside",
    ],
    6: [
        HERE + "test_6_nothing_but_the_api_is_on_its_listener",
        "front/test_keys.py::test_every_path_is_closed_without_a_key",
        "front/test_api.py::test_metrics_are_not_on_the_service_listener",
    ],
    7: ["guard/auth/test_authenticator.py::test_a_key_is_found_by_its_digest_and_not_kept"],
    8: [HERE + "test_8_and_10_no_database_and_no_pickle_is_near_a_request"],
    9: [HERE + "test_9_nothing_in_the_server_runs_commands_or_code"],
    10: [
        HERE + "test_8_and_10_no_database_and_no_pickle_is_near_a_request",
        "front/test_leases.py::test_strangers_bytes_are_refused",  # what nodes say to one another
    ],
    11: [HERE + "test_11_only_loopback_listens_unless_the_contract_says_otherwise"],
    12: [HERE + "test_12_no_address_in_a_request_is_ever_fetched"],
    13: [
        "model/test_gguf.py::test_a_hostile_file_is_one_clear_error",
        "model/test_gguf.py::test_changed_bytes_give_a_file_or_one_clear_error",
        "model/test_safetensors.py::test_any_damage_gives_a_sound_file_or_one_clear_error",
        "model/test_hf_folder.py::test_any_json_gives_a_description_or_one_clear_error",
    ],
    14: [
        HERE + "test_14_and_15_no_key_prompt_or_body_is_in_an_error_or_in_a_log",
        HERE + "test_14_what_is_answered_is_not_logged",
        "front/test_secrets.py::test_no_record_holds_a_key_or_a_prompt",
        "front/test_secrets.py::test_a_request_id_that_wants_to_forge_a_line_stays_in_its_own",
        "guard/ledger/test_ledger.py::test_a_changed_byte_is_found",
    ],
    15: [HERE + "test_14_and_15_no_key_prompt_or_body_is_in_an_error_or_in_a_log"],
    16: [
        HERE + "test_16_there_are_few_dependencies_and_each_has_a_reason",
        HERE + "test_16_what_is_deployed_is_pinned_by_its_hash",
    ],
    17: [
        "guard/auth/test_authenticator.py::test_a_flood_of_different_wrong_keys_costs_a_bounded_number_of_verifications",
        "guard/auth/test_authenticator.py::test_a_wrong_signature_is_refused_and_remembered",
        "front/test_keys.py::test_a_flood_of_wrong_keys_costs_few_verifications_and_keeps_nobody_else_waiting",
    ],
    18: ["guard/auth/test_key_format.py::test_scanners_for_secrets_find_a_key"],
}

SOURCES = Path(__file__).parents[2] / "src" / "zerolayer"
SERVER = [
    path
    for room in ("front", "guard", "model", "observe", "serve", "text", "wire")
    for path in sorted((SOURCES / room).glob("**/*.py"))
]
CANARY = "sk-canary-7f3a"
LARGE = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"description": "x" * 70_000}}}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_every_row_has_its_tests():
    assert list(ROWS) == list(range(1, 19))
    assert not_there(ROWS) == []


def test_1_a_client_cannot_send_a_chat_template(serve):
    members = {"chat_template": "{{ 7 * 7 }}", "chat_template_kwargs": {"x": 1}, "add_generation_prompt": False}
    assert serve().ask(chat("abc", **members)).json["choices"][0]["message"]["content"] == "abc"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (chat("a", n=2**31), 400),
        (chat("a", logprobs=True, top_logprobs=10**9), 400),
        (chat("a", stop=["x"] * 100), 400),
        (chat("a", stop="x" * 100_000), 400),
        (chat("a", max_tokens=10**18), 400),
        (chat("a", logit_bias={str(token): 1 for token in range(5000)}), 400),
        (post("/v1/completions", {"model": "echo", "prompt": "a", "best_of": 10**9}), 400),
        (post("/v1/completions", {"model": "echo", "prompt": ["a"] * 10_000}), 400),
        (post("/v1/completions", {"model": "echo", "prompt": "a", "logprobs": 10**9}), 400),
        (chat("a", tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]), 400),
        (chat("a", response_format=LARGE), 400),
        (chat("a" * 2_000_000), 413),
        (get("/v1/models", "x: " + "y" * 100_000), 431),
        (post("/v1/chat/completions", b'{"x":' + b"[" * 100_000), 400),
    ],
    ids=[
        "n", "top_logprobs", "stops", "stop", "max_tokens", "biases", "best_of", "prompts", "logprobs", "tools",
        "schema", "body", "head", "depth",
    ],
)  # fmt: skip
def test_2_everything_is_capped_before_it_costs_anything(serve, request_bytes, status):
    service: Service = serve()
    before = service.engine.opened  # heartbeats open a slot of their own
    assert service.ask(request_bytes).status == status
    assert (service.engine.opened, service.free_slots()) == (before, 4)


NUMBERS = (
    "n max_tokens max_completion_tokens min_tokens temperature top_p min_p repetition_penalty top_logprobs deadline_ms"
)


@pytest.mark.parametrize("name", NUMBERS.split())
def test_3_no_number_may_be_negative_that_must_not(serve, name):
    assert serve().ask(chat("a", **{name: -1, "logprobs": True})).status in {400, 422}


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/invocations", "/pause", "/tokenize", "/update_weights", "/docs", "/admin", "/debug", "/v1", "/"],
)
def test_6_nothing_but_the_api_is_on_its_listener(serve, path):
    assert serve().ask(get(path)).status == 404


def test_8_and_10_no_database_and_no_pickle_is_near_a_request():
    banned = {"sqlite3", "dbm", "shelve", "pickle", "marshal", "torch", "sqlalchemy", "psycopg"}
    assert {path.name: found for path in SERVER if (found := imported(path) & banned)} == {}


STARTS = ("parent.py", "starting.py")  # nodes, and who takes over


def test_9_nothing_in_the_server_runs_commands_or_code():
    calls = {"eval", "exec", "compile", "__import__", "system", "popen"}
    for path in SERVER:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in calls, path
        assert "subprocess" not in imported(path) or path.name in STARTS, path
    # Those who start nodes read no request: they have neither the door nor the guard.
    for text in [path.read_text() for path in SERVER if path.name in STARTS]:
        assert "zerolayer.front" not in text
        assert "zerolayer.guard" not in text


def test_11_only_loopback_listens_unless_the_contract_says_otherwise(serve):
    service: Service = serve()
    for listener in service.server.entrances._listeners.values():
        for bound in listener._sockets:
            if bound.family != socket.AF_UNIX:
                assert ipaddress.ip_address(bound.getsockname()[0]).is_loopback


def test_12_no_address_in_a_request_is_ever_fetched(serve):
    with socket.create_server(("127.0.0.1", 0)) as bait:
        bait.settimeout(0.2)
        address = f"http://127.0.0.1:{bait.getsockname()[1]}/x.png"
        parts = [{"type": "image_url", "image_url": {"url": address}}]
        body = {"model": "echo", "messages": [{"role": "user", "content": parts}]}
        service = serve()
        assert service.ask(post("/v1/chat/completions", body)).status == 400
        items = [{"role": "user", "content": [{"type": "input_image", "image_url": address}]}]
        assert service.ask(post("/v1/responses", {"model": "echo", "input": items})).status == 400
        with pytest.raises(TimeoutError):
            bait.accept()


def planted(path: str) -> list[bytes]:
    """Requests to ``path`` that fail, each with the canary in another place."""
    key = f"authorization: Bearer {CANARY}"
    texts = {"model": CANARY, "messages": [{"role": "user", "content": CANARY}], "prompt": CANARY, "input": CANARY}
    return [
        post(path, texts, key),
        post(path, texts | {"model": "echo", "temperature": CANARY, CANARY: 1}, key),
        post(path, texts | {"model": "echo", "n": 99, "top_logprobs": 99, "stop": [CANARY] * 99, "top_p": 9}, key),
        post(path, json.dumps(texts).encode()[:-2] + b"\x00", key),
        post(path, CANARY.encode() * 3, key, "x-request-id: a\x1b[31mb"),
        post(path + f"?api_key={CANARY}", {"user": CANARY}, f"x-api-key: {CANARY}"),
        get(path + f"/{CANARY}", key),
        get("/" + CANARY, key, f"x-zl-deadline-ms: {CANARY}"),
        post(path, texts | {"model": "echo"}, f"x-zl-deadline-ms: {CANARY}"),
        post(path, texts, f"content-type: text/{CANARY}"),
    ]


ROUTES = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/count_tokens",
    "/v1/models",
]


@pytest.mark.parametrize("path", ROUTES)
def test_14_and_15_no_key_prompt_or_body_is_in_an_error_or_in_a_log(serve, path, caplog):
    caplog.set_level(logging.DEBUG)
    service: Service = serve()
    for request in planted(path):
        reply = service.ask(request)
        assert reply.status != 500
        told = reply.body + repr(sorted(reply.headers.items())).encode()
        assert CANARY.encode() not in told, request[:80]
        assert b"\x1b" not in told
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    "body", [{"messages": [{"role": "user", "content": CANARY}]}, {"prompt": CANARY}, {"input": CANARY}]
)
def test_14_what_is_answered_is_not_logged(serve, body, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    path = {"messages": "/v1/chat/completions", "prompt": "/v1/completions", "input": "/v1/responses"}[next(iter(body))]
    service: Service = serve()
    key = f"authorization: Bearer {CANARY}"
    assert service.ask(post(path, {"model": "echo", "user": CANARY, **body}, key)).status == 200
    with service.connect() as client:
        client.sendall(post(path, {"model": "echo", "stream": True, **body}, key))
        client.recv(1)
    assert CANARY not in caplog.text + "".join(capfd.readouterr())


def test_16_there_are_few_dependencies_and_each_has_a_reason():
    text = (SOURCES.parents[1] / "pyproject.toml").read_text()
    named = tomllib.loads(text)["project"]["dependencies"]
    lines = [line for line in text.splitlines() if any(line.strip().startswith(f'"{name}"') for name in named)]
    assert len(named) <= 12
    assert [line for line in lines if "#" not in line] == []


PINNED = re.compile(r"^([\w.-]+)==\S+(?: ;[^\\]+)? \\\n +--hash=sha256:", re.MULTILINE)


def test_16_what_is_deployed_is_pinned_by_its_hash():
    root = SOURCES.parents[1]
    pins = PINNED.findall((root / "deploy/requirements.txt").read_text())
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split("[<>=]", name)[0] for name in declared} <= set(pins)
    installs = re.findall(r"pip (?:install|wheel) [^&\n]*", (root / "deploy/Dockerfile").read_text())
    assert len(installs) >= 4
    safe = {"--require-hashes", "--no-index", "--no-build-isolation"}
    assert [line for line in installs if not safe & set(line.split())] == []
