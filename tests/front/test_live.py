"""The live page: its files, its policy, and its stream of events."""

from __future__ import annotations

import json
import re
import socket

import pytest
from echo_service import chat, expect_soon, get


def read_events(client: socket.socket, until: str) -> list[tuple[str, dict[str, object]]]:
    """All complete events until one of that name has come."""
    data = b""
    while f"event: {until}\n".encode() not in data or not data.endswith(b"\n\n\r\n"):
        more = client.recv(65536)
        assert more
        data += more
    found = re.findall(rb"event: (\w+)\ndata: (.+)\n\n", data)
    return [(name.decode(), json.loads(body)) for name, body in found]


def last_moment(events):
    return [body for name, body in events if name == "moment"][-1]


@pytest.fixture
def echo(serve):
    return serve()


@pytest.fixture
def watcher(echo):
    with echo.connect(echo.server.admin_port) as client:
        client.sendall(get("/live"))
        yield client


def test_the_page_and_its_parts_are_on_the_admin_listener(echo):
    for path, media in (("/", "text/html"), ("/live.css", "text/css"), ("/live.js", "text/javascript")):
        reply = echo.ask(get(path), echo.server.admin_port)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith(media)


def test_the_service_itself_has_no_page(echo):
    assert echo.ask(get("/")).status == 404


def test_a_browser_may_load_nothing_else(echo):
    policy = echo.ask(get("/"), echo.server.admin_port).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy


def test_the_page_names_no_address_outside_of_the_server(echo):
    for path in ("/", "/live.css", "/live.js"):
        body = echo.ask(get(path), echo.server.admin_port).body.decode()
        assert not re.search(r"(src|href|url|import|fetch)\W{1,3}(https?:)?//", body)


def test_who_has_the_file_gets_no_second_copy(echo):
    etag = echo.ask(get("/live.js"), echo.server.admin_port).headers["etag"]
    assert echo.ask(get("/live.js", f"if-none-match: {etag}"), echo.server.admin_port).status == 304


def test_a_viewer_is_told_the_service_first_and_then_each_moment(watcher):
    events = read_events(watcher, "moment")
    assert [name for name, _ in events][:2] == ["service", "columns"]
    assert events[0][1]["version"] == 1
    moment = last_moment(events)
    assert len(moment["slots"]) == events[0][1]["slots"]
    assert moment["feasible"] is True


def test_a_running_request_is_seen_in_its_slot(echo, watcher):
    echo.hold_steps()
    with echo.connect() as client:
        client.sendall(chat("hello"))
        expect_soon(lambda: echo.running() == 1)
        watcher.recv(65536)
        slots = last_moment(read_events(watcher, "moment"))["slots"]
        running = [slot for slot in slots if slot[0] == "running"]
        assert len(running) == 1
        assert running[0][1] <= 0 < running[0][3]  # it came before now, and its deadline is after


def test_a_viewer_that_leaves_is_forgotten(echo):
    with echo.connect(echo.server.admin_port) as client:
        client.sendall(get("/live"))
        expect_soon(lambda: echo.on_loop(lambda: echo.server.live.viewers) == 1)
    expect_soon(lambda: echo.on_loop(lambda: echo.server.live.viewers) == 0)


def test_a_viewer_is_no_abandoned_request(echo):
    with echo.connect(echo.server.admin_port) as client:
        client.sendall(get("/live"))
        expect_soon(lambda: echo.on_loop(lambda: echo.server.live.viewers) == 1)
    expect_soon(lambda: echo.on_loop(lambda: echo.server.live.viewers) == 0)
    page = echo.ask(get("/metrics"), echo.server.admin_port).body.decode()
    assert 'zerolayer:abandoned_total{model_name="echo",phase="prefill"} 0\n' in page


def test_a_client_that_leaves_a_reply_is_counted_once(echo):
    echo.hold_steps()
    with echo.connect() as client:
        client.sendall(chat("hello", stream=True))
        expect_soon(lambda: echo.running() == 1)
        echo.step(2)
        client.recv(65536)
    expect_soon(lambda: echo.running() == 0)
    page = echo.ask(get("/metrics"), echo.server.admin_port).body.decode()
    assert 'zerolayer:abandoned_total{model_name="echo",phase="decode"} 1\n' in page
    assert 'zerolayer:abandoned_total{model_name="echo",phase="prefill"} 0\n' in page
