"""Both clients over TLS: who may be trusted, and who is not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
import trustme

from zerolayer import AsyncClient, Client
from zerolayer.client.errors import NotReachable

HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def url(authority: trustme.CA, http) -> Iterator[str]:
    """A server that answers one request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)

    def answer() -> None:
        connection, _ = listener.accept()
        try:
            with context.wrap_socket(connection, server_side=True) as stream:
                stream.recv(65536)
                stream.sendall(http.hello)
                stream.unwrap()
        except OSError:
            connection.close()  # a client that does not trust us leaves

    thread = threading.Thread(target=answer)
    thread.start()
    yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    thread.join()
    listener.close()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_an_answer_comes_over_tls(url: str, trusting: ssl.SSLContext) -> None:
    assert Client(url, tls=trusting).chat(HI, model="m").answer().text == "Hello é"


def test_an_answer_comes_over_tls_with_asyncio(url: str, trusting: ssl.SSLContext) -> None:
    answer = asyncio.run(AsyncClient(url, tls=trusting).chat(HI, model="m").answer())
    assert answer.text == "Hello é"


def test_a_server_whose_certificate_nobody_trusts_is_sent_nothing(url: str) -> None:
    with pytest.raises(NotReachable) as caught:
        Client(url).chat(HI, model="m")
    assert not caught.value.sent


def test_a_server_whose_certificate_nobody_trusts_is_sent_nothing_with_asyncio(url: str) -> None:
    with pytest.raises(NotReachable) as caught:
        asyncio.run(AsyncClient(url).chat(HI, model="m").answer())
    assert not caught.value.sent
