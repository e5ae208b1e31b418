"""TLS 1.3, clients with certificates, reload without dropping anybody, and Unix sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
from pathlib import Path

import pytest
import trustme
from echo_service import Service, get, read_reply
from http2_client import Http2Client

from zerolayer.errors import StartupError
from zerolayer.front.caller import Caller
from zerolayer.front.listener import bind_unix
from zerolayer.front.tls import Tls, TlsFiles

AUTHORITY = trustme.CA()


class Files:
    """A certificate for localhost, in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.authority = folder / "chain.pem", folder / "key.pem", folder / "ca.pem"
        AUTHORITY.cert_pem.write_to_path(self.authority)
        self.issue()

    def issue(self) -> None:
        issued = AUTHORITY.issue_cert("localhost", "127.0.0.1")
        self.certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.key)

    @property
    def flags(self) -> dict[str, str]:
        return {"certificate": str(self.certificate), "key": str(self.key)}


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def service(serve, files) -> Service:
    return serve(**files.flags)


def connect(service: Service, *alpn: str, own: trustme.LeafCert | None = None) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if own is not None:
        own.configure_cert(context)
    return context.wrap_socket(service.connect(), server_hostname="localhost")


def test_http_1_over_tls(service):
    with connect(service, "http/1.1") as client:
        assert (client.version(), client.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
        client.sendall(get("/livez"))
        assert read_reply(client).status == 200


def test_http_2_by_alpn(service):
    with connect(service, "h2", "http/1.1") as client:
        assert client.selected_alpn_protocol() == "h2"
        peer = Http2Client(client)
        assert peer.reply(peer.chat("over TLS"))[0] == 200


@pytest.mark.parametrize("http2", [False, True])
def test_without_alpn_the_first_bytes_decide(service, http2):
    with connect(service) as client:
        if http2:
            peer = Http2Client(client)
            assert peer.reply(peer.ask("GET", "/livez"))[0] == 200
        else:
            client.sendall(get("/livez"))
            assert read_reply(client).status == 200


def test_an_older_tls_is_refused(service):
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with service.connect() as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="localhost")


def test_plain_bytes_on_a_tls_port_get_no_reply(service):
    with service.connect() as client:
        client.sendall(get("/livez"))
        with contextlib.suppress(ConnectionError):
            assert not client.recv(4096).startswith(b"HTTP/1.1 200")
    with connect(service, "http/1.1") as client:
        client.sendall(get("/livez"))
        assert read_reply(client).status == 200


def test_a_reload_is_for_new_connections_and_drops_none(service, files):
    with connect(service, "http/1.1") as old:
        before = old.getpeercert()["serialNumber"]
        files.issue()
        service.on_loop(service.server.reload)
        old.sendall(get("/livez"))
        assert read_reply(old).status == 200
    with connect(service, "http/1.1") as new:
        assert new.getpeercert()["serialNumber"] != before


def test_a_reload_of_unfit_files_changes_nothing(service, files):
    files.key.write_text("no key")
    service.on_loop(service.server.reload)
    with connect(service, "http/1.1") as client:
        client.sendall(get("/livez"))
        assert read_reply(client).status == 200


@pytest.mark.parametrize("broken", ["certificate", "key", "authority"])
def test_unfit_files_are_told_at_start(files, broken):
    getattr(files, broken).write_text("-----BEGIN NOTHING-----")
    with pytest.raises(StartupError, match="--c"):
        Tls(TlsFiles(str(files.certificate), str(files.key), str(files.authority)))


def test_only_clients_with_a_certificate_come_in_where_they_need_one(serve, files):
    service = serve(**files.flags, client_ca=str(files.authority))
    callers: list[Caller] = []
    watch_callers(service, callers)
    own = AUTHORITY.issue_cert("client@example.org", common_name="one client")
    with connect(service, "http/1.1", own=own) as client:
        client.sendall(get("/livez"))
        assert read_reply(client).status == 200
    assert callers == [Caller(subject="one client", address="127.0.0.1")]
    with pytest.raises((ssl.SSLError, ConnectionError)), connect(service, "http/1.1") as stranger:  # noqa: PT012
        stranger.sendall(get("/livez"))
        stranger.recv(1)
        raise ConnectionError  # a clean end is a refusal as well


def watch_callers(service: Service, callers: list[Caller]) -> None:
    def livez(exchange) -> None:
        callers.append(exchange.caller)
        exchange.reply(200, (), b"")

    for router in (service.server.tables.routers.service, service.server.tables.routers.local):
        service.on_loop(lambda router=router: router.offer("/livez", {"GET": livez}))


# Unix sockets.


def local(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(str(path))
    return client


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "zl.sock"


def test_a_unix_socket_is_for_this_user_and_says_who_connected(serve, path):
    service = serve(unix=str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    callers: list[Caller] = []
    watch_callers(service, callers)
    with local(path) as client:
        client.sendall(get("/livez"))
        assert read_reply(client).status == 200
    with local(path) as client:
        peer = Http2Client(client)
        assert peer.reply(peer.ask("GET", "/livez"))[0] == 200
    assert callers == [Caller(os.getpid(), os.getuid(), os.getgid())] * 2
    assert service.ask(get("/livez")).status == 200
    service.close()
    assert not path.exists()


def test_a_unix_socket_beside_tls_is_plain(serve, files, path):
    serve(**files.flags, unix=str(path))
    with local(path) as client:
        client.sendall(get("/livez"))
        assert read_reply(client).status == 200


def test_a_unix_socket_is_called_by_any_name(serve, path):
    serve(unix=str(path))
    with local(path) as client:
        client.sendall(get("/livez", "host: %2Ftmp%2Fzl.sock"))
        assert read_reply(client).status == 200


def test_a_dead_server_s_socket_is_taken_over(path):
    bind_unix(str(path)).close()
    bind_unix(str(path)).close()
    assert path.exists()


def test_a_socket_in_use_is_told(path):
    with bind_unix(str(path)), pytest.raises(StartupError, match="in use"):
        bind_unix(str(path))


def test_another_file_is_never_removed(path):
    path.write_text("precious")
    with pytest.raises(StartupError, match="no socket"):
        bind_unix(str(path))
    assert path.read_text() == "precious"


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(StartupError, match="--unix"):
        bind_unix(str(tmp_path / "none" / "zl.sock"))
