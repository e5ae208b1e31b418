"""The client without the server's needs: what is imported, and what still works where nothing else is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.fake_servers import FakeNameServer

SOURCE = Path(__file__).parents[2] / "src"
# A Python that has the standard library and this package's sources, and nothing else.
BARE = f"""
import sys
sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry] + [{str(SOURCE)!r}]
sys.meta_path[:] = [finder for finder in sys.meta_path if "zerolayer" not in repr(finder).lower()]
for name in ("hpack", "msgspec", "numpy", "tiktoken", "regex", "httptools", "uvloop", "cryptography", "jinja2"):
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(name + " is here, so this would prove nothing")
"""


def bare(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-c", BARE + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["Client", "AsyncClient"])
def test_a_client_asks_where_nothing_but_the_standard_library_is_installed(scripted, http, name) -> None:
    server = scripted(http.models, http.hello)
    ask = {
        "Client": "Client(url).chat(messages).answer()",
        "AsyncClient": "__import__('asyncio').run(AsyncClient(url).chat(messages).answer())",
    }[name]
    code = f"""
from zerolayer import {name}
url, messages = {server.url!r}, [{{"role": "user", "content": "Hi"}}]
answer = {ask}
print(ascii(answer.text), answer.outcome.finish_reason)
"""
    assert bare(code) == "'Hello \\xe9' stop"


def test_a_name_is_looked_up_where_nothing_but_the_standard_library_is_installed(scripted, http) -> None:
    server, names = scripted(http.hello), FakeNameServer()
    names.add("_http._tcp.nodes", 33, "127.0.0.1", port=int(server.url.rpartition(":")[2]))
    code = f"""
from zerolayer import Client
client = Client("dns+srv://_http._tcp.nodes?server={names.address}")
print(ascii(client.chat([{{"role": "user", "content": "Hi"}}], model="m").answer().text))
"""
    try:
        assert bare(code) == "'Hello \\xe9'"
    finally:
        names.close()


def test_a_zerolayer_server_is_spoken_to_in_http1_where_hpack_is_missing(scripted, http) -> None:
    hello = http.hello.replace(b"200 OK", b"200 OK\r\nserver: zerolayer/1")
    server = scripted(hello, hello)
    code = f"""
from zerolayer import Client
client = Client({server.url!r}, protocol="json")
for _ in range(2):
    client.chat([{{"role": "user", "content": "Hi"}}], model="m").answer()
"""
    bare(code)
    assert all(request.startswith(b"POST /v1/chat/completions HTTP/1.1") for request in server.requests)


def test_what_cannot_be_done_without_hpack_says_what_to_install() -> None:
    code = """
from zerolayer import Client
from zerolayer.client.errors import NotSupported
try:
    Client(protocol="grpc")
except NotSupported as error:
    print(error.message)
"""
    assert "pip install hpack" in bare(code)


def test_text_is_left_to_the_server_where_the_tokeniser_is_missing() -> None:
    code = "from zerolayer.client.vocabulary import can_tokenise, tokeniser\nprint(can_tokenise(), tokeniser(b''))"
    assert bare(code) == "False None"
