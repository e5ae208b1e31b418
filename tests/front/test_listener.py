"""Listening sockets: who may bind, how many may come."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
from contextlib import closing

import pytest
from echo_service import NS, chat, expect_soon, get, read_reply

from zerolayer.errors import StartupError
from zerolayer.front._native import Sockets
from zerolayer.front.listener import affordable_connections, bind
from zerolayer.front.plain import PlainTransport
from zerolayer.front.site import ConnectionLimits
from zerolayer.model.step_clock import StepReport


def test_other_machines_are_kept_out_unless_told_otherwise():
    with pytest.raises(StartupError, match="--insecure"):
        bind("0.0.0.0", 0, insecure=False, flag="--port")


def test_an_insecure_listener_may_have_any_address():
    sockets = bind("0.0.0.0", 0, insecure=True, flag="--port")
    assert sockets[0].getsockname()[1] > 0
    sockets[0].close()


def test_a_name_that_is_no_address_is_told():
    with pytest.raises(StartupError, match="--admin"):
        bind("no.such.name.invalid", 0, insecure=True, flag="--admin")


def test_a_port_in_use_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StartupError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1], insecure=False, flag="--port")


def test_descriptors_limit_connections():
    assert affordable_connections(4096, 1024) == 960
    assert affordable_connections(100, 1 << 20) == 100


def test_the_kernel_asks_whether_a_peer_is_still_there():
    """A call that waits for news, as of the health service, sends nothing that would tell."""
    (listening,) = bind("127.0.0.1", 0, insecure=False, flag="--port")
    listening.setblocking(True)
    with listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_a_connection_over_the_limit_is_answered_503_and_closed(serve):
    service = serve(section={"connections": 2})
    with service.connect() as first, service.connect() as second:
        expect_soon(lambda: len(service.server.connections) == 2)
        with service.connect() as third:
            third.sendall(chat("too many"))
            reply = read_reply(third)
            assert third.recv(1) == b""
        first.sendall(get("/livez"))
        second.sendall(get("/livez"))
        assert [read_reply(first).status, read_reply(second).status] == [200, 200]
    assert (reply.status, reply.error["code"], reply.headers["connection"]) == (503, "unavailable", "close")
    assert int(reply.headers["retry-after-ms"]) >= 1
    expect_soon(lambda: len(service.server.connections) == 0)
    assert service.ask(get("/livez")).status == 200


def _shorten_send_buffers(service) -> None:
    """The kernel would otherwise take megabytes before the server notices."""
    for connection in service.server.connections:
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def test_slow_loris_heads_are_ended_by_the_sweep(serve):
    service = serve(limits=ConnectionLimits(head_ns=NS // 5))
    with closing(service.connect()) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: local")
        reply = read_reply(client)
        assert client.recv(1) == b""
    assert (reply.status, reply.error["code"]) == (408, "request_timeout")


def test_idle_connections_are_closed_by_the_sweep(serve):
    service = serve(limits=ConnectionLimits(idle_ns=NS // 5))
    with closing(service.connect()) as client:
        assert client.recv(1) == b""


def test_a_client_that_stops_reading_is_cut_and_its_slot_freed(serve):
    limits = ConnectionLimits(unsent_bytes=65536)
    service = serve(slots=2, slot_tokens=65536, step_us=0, limits=limits, section={"max_tokens": 60_000})
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", service.port))
        client.sendall(chat("a" * 30_000, stream=True, ignore_eos=True, max_tokens=35_000))
        expect_soon(lambda: service.running() == 1)
        service.on_loop(lambda: _shorten_send_buffers(service))
        assert service.ask(chat("others are served")).status == 200
        expect_soon(lambda: service.free_slots() == 2, 60)
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    assert 'vllm:request_success_total{model_name="echo",finished_reason="abort"} 1' in page


def test_an_engine_that_is_quicker_than_its_reports_are_read_leaves_the_loop_to_others(serve):
    service = serve()
    reports, endless = service.server.room.reports, True

    def another(report: StepReport) -> None:
        if endless:
            reports.put(report)

    reports.take = another
    service.on_loop(lambda: another(StepReport(0, 0, "none")))
    reports.bell.ring()
    try:
        assert service.ask(get("/livez")).status == 200
        assert reports
    finally:
        endless = False


def test_accepted_connections_send_small_pieces_at_once(serve):
    service = serve()
    with service.connect() as client:
        client.sendall(get("/livez"))
        read_reply(client)
        (connection,) = service.server.connections
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_who_waits_is_accepted_at_once_and_not_inherited():
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as opened:
        listening.setblocking(False)
        for _ in range(3):
            opened.enter_context(socket.create_connection(listening.getsockname()))
        watched = Sockets(PlainTransport)
        found, _ = watched.accept(listening.fileno(), 2, 64)
        assert [address for _, address, _ in found] == ["127.0.0.1"] * 2
        accepted = [socket.socket(fileno=each) for each, _, _ in found]
        assert len(accepted) == 2
        assert not any(os.get_blocking(each.fileno()) or each.get_inheritable() for each in accepted)
        left, error = watched.accept(listening.fileno(), 64, 64)
        accepted += [socket.socket(fileno=each) for each, _, _ in left]
        assert (len(left), error, watched.accept(listening.fileno(), 64, 64)) == (1, 0, ([], 0))
        for each in accepted:
            each.close()


@pytest.mark.parametrize("said", [0, 1, 2, 3, 20, 1 << 20])
def test_what_a_client_says_before_it_is_accepted_counts_whatever_it_speaks(serve, said):
    service = serve()
    request = chat("a word", "x-many: " + "y" * 20_000)  # more than is read with the acceptance
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    clients = []
    accepts = threading.Event()
    service.loop.call_soon_threadsafe(accepts.wait, 10)
    for first in (request, preface):
        clients.append(service.connect())
        clients[-1].sendall(first[:said])
    accepts.set()
    expect_soon(lambda: len(service.server.connections) == 2)
    with clients[0] as plain, clients[1] as second:
        plain.sendall(request[said:])
        second.sendall(preface[said:])
        assert read_reply(plain).status == 200
        plain.sendall(request)
        assert read_reply(plain).status == 200
        assert second.recv(9)[3] == 4  # SETTINGS


def test_why_nobody_can_be_accepted_is_told():
    with socket.socket() as deaf:
        assert Sockets(PlainTransport).accept(deaf.fileno(), 1, 1) == ([], errno.EINVAL)


def test_of_those_who_are_accepted_only_as_many_are_watched_as_there_is_room_for():
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as opened:
        listening.setblocking(False)
        clients = [opened.enter_context(socket.create_connection(listening.getsockname())) for _ in range(3)]
        for client in clients[1:]:
            client.send(b"first words")
        watched = Sockets(PlainTransport)
        found, error = watched.accept(listening.fileno(), 64, 2)
        assert [said for _, _, said in found] == [b"", b"first words", b""]  # who is not watched is not read
        accepted = [opened.enter_context(socket.socket(fileno=each)) for each, _, _ in found]
        assert (len(found), error) == (3, 0)
        clients[2].send(b"a")
        assert select.select([watched], [], [], 0.05)[0] == []  # what was read is not told twice
        clients[0].send(b"b")
        assert select.select([watched], [], [], 10)[0] == [watched]
        watched.watch(accepted[2].fileno(), False, True, False)  # it is not watched yet
        watched.close()


def test_what_nobody_answers_for_is_watched_no_more():
    """A loop would find it readable for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        with socket.create_connection(listening.getsockname()) as client:
            watched = Sockets(PlainTransport)
            ((descriptor, _, _),), _ = watched.accept(listening.fileno(), 64, 64)
            with socket.socket(fileno=descriptor):
                client.send(b"a")
                assert select.select([watched], [], [], 10)[0] == [watched]
                watched.look({})
                assert select.select([watched], [], [], 0)[0] == []
            watched.close()


def test_connections_that_are_dropped_while_they_open_are_closed(serve, tmp_path):
    """Those of a Unix socket and of TLS take a turn or two to open."""
    path = str(tmp_path / "door")
    service = serve(unix=path)
    listeners = service.server.entrances._listeners.values()
    (listener,) = [each for each in listeners if each.sockets[0].getsockname() == path]

    def drop() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)  # the kernel takes it; the loop is busy here
        listener._accept(listener.sockets[0])
        assert listener.opening
        listener.drop_opening()
        return client

    with service.on_loop(drop) as client:
        client.settimeout(10)
        assert client.recv(1) == b""
    assert not listener.opening
    assert service.ask(get("/livez")).status == 200
