"""One node asks another: connections that are kept, lists that are fetched when they changed, and strangers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile

import pytest

from zerolayer.cluster.question import Asker
from zerolayer.wire.load import Load

LIST = (
    b'{"epoch":7,"self":"http://b:1","nodes":[{"address":"http://b:1","state":"ready","model":"smollm2"}],"version":2}'
)


class Node:
    """Answers GET with what the test says; ``closes`` after so many replies on one connection."""

    def __init__(self) -> None:
        self.status = "200 OK"
        self.load = "free=3;next_ms=0;derate=0.9;epoch=7"
        self.body = LIST
        self.closes = 1_000
        self.pause_s = 0.0  # after each byte
        self.wanted, self.said, self.left = b"", 0, threading.Event()  # of the last reply, where it is slow
        self.connections = 0
        self.heads: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            for _ in range(self.closes):
                head = b"".join(takewhile(lambda line: line.strip(), iter(stream.readline, b""))).decode()
                if not head:  # the other side has left
                    return
                self.heads.append(head)
                body = self.body if "/v1/nodes" in head else b""
                lines = [f"HTTP/1.1 {self.status}", f"content-length: {len(body)}", f"x-zl-load: {self.load}"]
                self._send(connection, "\r\n".join([*lines, "x-zl-node: http://b:1", "", ""]).encode() + body)

    def _send(self, connection: socket.socket, reply: bytes) -> None:
        if not self.pause_s:
            connection.sendall(reply)
            return
        self.wanted = reply
        try:
            for self.said in range(len(reply)):
                connection.sendall(reply[self.said : self.said + 1])
                time.sleep(self.pause_s)
        except OSError:
            self.left.set()


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


@pytest.fixture
def asker() -> Iterator[Asker]:
    asker = Asker("http://a:1", "secret")
    yield asker
    asker.close()


def test_a_node_says_whether_it_takes_work_what_it_is_called_and_its_load(node, asker) -> None:
    word = asker.ask(node.url, 7, named=True)
    assert (word.ready, word.says, word.load.free, word.load.derate) == (True, "http://b:1", 3, 0.9)
    node.status = "503 Service Unavailable"
    assert asker.ask(node.url, 7, named=True).ready is False


def test_its_list_is_fetched_only_when_it_is_another_than_our_own(node, asker) -> None:
    assert asker.ask(node.url, 7, named=True).nodes is None
    assert asker.ask(node.url, 6, named=True).nodes.nodes[0].model == "smollm2"


def test_the_question_announces_the_asker_and_shows_the_key_only_where_the_operator_said(node, asker) -> None:
    for named in (True, False):
        asker.ask(node.url, 6, named=named)
    open_one, listing, _, open_listing = node.heads
    assert "secret" not in open_one + open_listing
    assert "authorization: Bearer secret" in listing
    assert "x-zl-node: http://a:1" in listing


def test_a_connection_is_kept(node, asker) -> None:
    for _ in range(5):
        asker.ask(node.url, 7, named=True)
    assert node.connections == 1


def test_one_that_was_closed_meanwhile_is_no_miss(node, asker) -> None:
    node.closes = 1
    assert all(asker.ask(node.url, 7, named=True) for _ in range(3))


def test_after_the_end_none_is_kept(node, asker) -> None:
    asker.ask(node.url, 7, named=True)
    asker.close()
    for _ in range(2):
        asker.ask(node.url, 7, named=True)
    assert node.connections == 3


@pytest.mark.parametrize("load", ["", "free=1", "free=x;next_ms=0", "free=1;next_ms=0;derate=0", "free=-1;next_ms=0"])
def test_whoever_tells_no_load_is_no_node(node, asker, load) -> None:
    node.load = load
    assert asker.ask(node.url, 7, named=True) is None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"epoch":"x"}', b"\xff" * 100, b"[" * 100_000, b'{"x":' + b"[" * 100_000]
)
def test_a_list_that_is_none_makes_its_teller_no_node(node, asker, body) -> None:
    node.body = body
    assert asker.ask(node.url, 1, named=True) is None


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://127.0.0.1:99999", "https://127.0.0.1:1"])
def test_nobody_is_there(asker, address) -> None:
    assert asker.ask(address, 0, named=True) is None


def test_members_of_the_load_that_are_not_known_are_passed_over() -> None:
    load = Load.parse("epoch=9; free=2;future=yes;next_ms=40")
    assert (load.free, load.next_ms, load.derate, load.epoch) == (2, 40, 1.0, 9)


def test_a_node_that_speaks_a_byte_at_a_time_is_listened_to_no_longer_than_a_question_may_take(node) -> None:
    node.pause_s = 0.02
    assert Asker("http://a:1", timeout_s=0.2).ask(node.url, 7, named=True) is None
    assert node.left.wait(30)
    assert node.said < len(node.wanted)
