"""The security list, a test a row. Rows about keys are judged with the keys, those about model files in tests/model
(test_gguf, test_safetensors, test_hf_folder), those about prompts that share a cache in tests/model/test_prefix_cache.
"""

from __future__ import annotations

import ast
import ipaddress
import json
import logging
import socket
import tomllib
from pathlib import Path

import pytest
from echo_service import Service, chat, get, post

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


PARENT = "parent.py"


def test_9_nothing_in_the_server_runs_commands_or_code():
    calls = {"eval", "exec", "compile", "__import__", "system", "popen"}
    for path in SERVER:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in calls, path
        assert "subprocess" not in imported(path) or path.name == PARENT, path
    # The one that starts nodes reads no request: it has neither the door nor the guard.
    (parent,) = [path.read_text() for path in SERVER if path.name == PARENT]
    assert "zerolayer.front" not in parent
    assert "zerolayer.guard" not in parent


def test_11_only_loopback_listens_unless_the_contract_says_otherwise(serve):
    service: Service = serve()
    for listener in service.server.entrances._listeners:
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
