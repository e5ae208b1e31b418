"""A step that does not end, seen from outside: who is refused, who is told, and how the server comes back."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from echo_service import Service, chat, expect_soon, get, read_reply

from zerolayer.errors import EngineFailed
from zerolayer.model import quarantine
from zerolayer.model.watchdog import Watchdog
from zerolayer.serve.service_manager import ServiceManager

MS = 1_000_000
SLOTS = 2


def watchful(serve, lost_ms: int = 60_000) -> Service:
    """A service that calls a step stalled after 100 ms."""
    return serve(slots=SLOTS, watchdog=Watchdog(lambda: 0, at_least_ns=100 * MS, lost_ns=lost_ms * MS))


@pytest.fixture
def stalled(serve):
    """A service in the middle of a step that does not end, and the reply of the stream that it carries."""
    service = watchful(serve)
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("held", stream=True))
        yield service, read_reply(client)


def test_the_streams_of_a_stalled_step_end_with_an_error_event(stalled):
    _, reply = stalled
    assert reply.status == 500 or reply.events[-1]["error"]["code"] == "engine_failed"


def test_a_stalled_server_takes_no_work_and_says_so(stalled):
    service, _ = stalled
    assert [service.ask(get(path)).status for path in ("/readyz", "/livez")] == [503, 200]
    refused = service.ask(chat("new"))
    assert (refused.status, refused.error["code"]) == (503, "unavailable")
    assert (refused.headers["retry-after-ms"], refused.headers["x-should-retry"]) == ("1000", "true")


@pytest.mark.parametrize("draft", [False, True])
def test_who_was_admitted_and_has_not_begun_is_told_too(serve, draft):
    """Its text is read on another thread when the step stalls; the engine gets nothing that nobody ends."""
    service = serve(
        slots=SLOTS, slot_tokens=8192, watchdog=Watchdog(lambda: 0, at_least_ns=100 * MS, lost_ns=60_000 * MS)
    )
    service.hold_steps()
    read = threading.Event()
    with service.connect() as held, service.connect() as other:
        held.sendall(chat("held"))
        expect_soon(lambda: service.running() == 1)
        service.loaded.encoder.before = lambda: read.wait(10)
        other.sendall(chat("a" * 5000, max_tokens=0 if draft else 5))
        expect_soon(lambda: service.ask(get("/readyz")).status == 503)
        read.set()
        refused = read_reply(other)
    assert (refused.status, refused.error["code"]) == (503, "unavailable")
    service.step(1000)
    expect_soon(lambda: service.free_slots() == SLOTS)
    assert not service.on_loop(lambda: service.server.admission.drafts.taken)


def test_a_client_that_comes_for_its_booking_while_the_engine_stalls_loses_no_trust(serve):
    service = serve(slots=1, watchdog=Watchdog(lambda: 0, at_least_ns=100 * MS, lost_ns=60_000 * MS))
    service.hold_steps()
    with service.connect() as held:
        held.sendall(chat("held" * 10))
        expect_soon(lambda: service.running() == 1)
        told = service.ask(chat("me", "x-stainless-retry-count: 0"))
        comes = time.monotonic() + int(told.headers["retry-after-ms"]) / 1000
        expect_soon(lambda: service.ask(get("/readyz")).status == 503)
        time.sleep(max(0.0, comes - time.monotonic()))
        assert service.ask(chat("me", "x-stainless-retry-count: 1")).status == 503
    page = service.ask(get("/metrics"), service.server.admin_port).body.decode()
    assert 'zerolayer:booking_total{model_name="echo",outcome="broken"} 1' in page
    attendance, bookings = service.on_loop(
        lambda: (service.server.admission.attendance, len(service.server.slots.bookings))
    )
    assert (attendance.lapsed, bookings) == (0, 0)


def test_a_thousand_probes_of_a_stalled_server_leave_nothing_behind(stalled):
    service, _ = stalled
    before = service.on_loop(lambda: (len(service.server.connections), service.server.glue.in_flight))
    with service.connect() as client:
        for _ in range(1000):
            client.sendall(get("/readyz"))
            assert read_reply(client).status == 503
    expect_soon(
        lambda: before == service.on_loop(lambda: (len(service.server.connections), service.server.glue.in_flight))
    )


def test_a_slot_of_a_stalled_step_is_not_free_before_the_step_ends(stalled):
    service, _ = stalled
    assert service.free_slots() == SLOTS - 1


def test_when_the_step_ends_the_server_takes_work_again(stalled):
    service, _ = stalled
    service.step(1000)
    expect_soon(lambda: service.ask(get("/readyz")).status == 200)
    expect_soon(lambda: service.free_slots() == SLOTS)
    assert service.ask(chat("after")).json["choices"][0]["message"]["content"] == "after"


def test_a_step_that_never_ends_is_given_up(serve):
    service = watchful(serve, lost_ms=100)
    lost = threading.Event()
    service.server.room.supervisor._give_up = lambda _recorder: lost.set()
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("held"))
        assert lost.wait(10)


def test_a_server_that_drains_stays_closed_when_a_stalled_step_ends(stalled):
    service, _ = stalled
    service.on_loop(lambda: service.server.guard.close(service.server.guard.closed))
    service.step(1000)
    expect_soon(lambda: service.free_slots() == SLOTS)
    assert service.ask(get("/readyz")).status == 503


def falls_silent(manager: socket.socket) -> bool:
    """Nothing comes for many times as long as between two signs of life, once what was said before is read."""
    manager.settimeout(0.3)
    try:
        for _ in range(20):
            manager.recv(100)
    except TimeoutError:
        return True
    return False


def test_a_service_manager_hears_nothing_while_a_step_does_not_end_and_again_when_it_has(serve, tmp_path):
    """systemd restarts a service of Type=notify that gives no sign of life for its WatchdogSec."""
    service = watchful(serve)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(5)
        environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000"}
        told = ServiceManager(environ, lambda: service.server.alive)
        service.on_loop(told.ready)
        assert [manager.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
        service.hold_steps()
        with service.connect() as client:
            client.sendall(chat("held"))
            expect_soon(lambda: not service.server.alive)
            assert falls_silent(manager)
            service.step(1000)
            manager.settimeout(5)
            assert manager.recv(100) == b"WATCHDOG=1"
        service.on_loop(told.close)


# The device


def test_a_device_whose_steps_keep_failing_is_in_quarantine_and_returns_by_itself(serve):
    service = serve(slots=SLOTS)
    service.engine.broken = EngineFailed("a step failed; send the request again")
    service.ask(chat("first"))  # one step fails, and then the probes that follow it
    expect_soon(lambda: service.ask(get("/readyz")).status == 503)
    refused = service.ask(chat("new"))
    assert (refused.status, refused.error["code"]) == (503, "unavailable")
    assert "quarantine" in refused.error["message"]
    assert service.server.alive
    service.engine.broken = None
    expect_soon(lambda: service.ask(get("/readyz")).status == 200)
    assert service.ask(chat("after")).json["choices"][0]["message"]["content"] == "after"


def test_a_heartbeat_of_an_idle_server_is_in_the_flight_recorder_and_no_step_of_any_request(serve):
    service = serve(slots=SLOTS)
    service.ask(chat("first"))
    recorder, steps = service.server.recorder, service.server.dispatcher.metrics.steps
    counted = service.on_loop(lambda: dict(steps))
    before = len(recorder.records())
    service.server.steps.probe()
    expect_soon(lambda: len(recorder.records()) == before + 3)
    assert [record.beats for record in recorder.records()[before:]] == [True] * 3
    assert service.on_loop(lambda: dict(steps)) == counted


def test_one_step_that_fails_is_no_quarantine(serve):
    service = serve(slots=SLOTS)
    service.hold_steps()
    with service.connect() as client:
        client.sendall(chat("held"))
        expect_soon(lambda: service.running() == 1)
        service.engine.broken = EngineFailed("a step failed; send the request again")
        service.step(1)
        assert read_reply(client).status == 500
        service.engine.broken = None
        service.step(1000)
    assert service.ask(get("/readyz")).status == 200
    assert service.ask(chat("after")).status == 200


def test_a_device_that_gives_another_output_than_the_known_one_ends_its_streams_and_serves_nobody(serve):
    service = serve(slots=SLOTS, step_us=20_000)
    known = service.server.heartbeat._expected["full"]
    with service.connect() as client:
        client.sendall(chat("cut short " * 20, stream=True))
        client.recv(1)
        service.server.heartbeat._expected["full"] = [-1]
        for _ in service.server.room.programs.names:
            before = service.server.heartbeat.beats
            service.server.steps.probe()
            expect_soon(lambda before=before: service.server.heartbeat.beats > before)
        expect_soon(lambda: service.ask(get("/readyz")).status == 503)
        assert b"engine_failed" in client.makefile("rb").read()
    service.server.heartbeat._expected["full"] = known
    expect_soon(lambda: service.ask(get("/readyz")).status == 200)


def test_a_device_that_never_returns_ends_the_process(serve, monkeypatch):
    monkeypatch.setattr(quarantine, "RETURNS", 1)
    service = serve(slots=SLOTS)
    lost = threading.Event()
    service.server.room.supervisor._give_up = lambda _recorder: lost.set()
    service.engine.broken = EngineFailed("a step failed; send the request again")
    service.ask(chat("first"))
    assert lost.wait(20)
