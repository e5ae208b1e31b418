"""A new process takes the service over from the one that runs: real processes, real sockets, stock clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from takeover.place import WAIT_S, Load, Place, end, stopped
from zerolayer.errors import TakeoverFailed
from zerolayer.guard.ledger.annex import annexes
from zerolayer.serve.takeover.messages import (
    VERSION,
    Estate,
    Go,
    Ready,
    Refused,
    Take,
)
from zerolayer.serve.takeover.new import NewProcess


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    end(made)


def test_stock_clients_notice_nothing_and_every_request_is_recorded_once(place):
    old = place.serve()
    load = Load(place, retries=0)
    load.go_on()
    before = load.done
    new = place.serve("--takeover")
    assert old.wait(WAIT_S) == 0
    load.go_on()
    load.end()
    told = list(place.told)
    assert stopped(new) == 0
    assert load.failed == []
    assert load.done > before > 0
    assert len(place.records()) == load.done
    assert annexes(place.ledger) == []
    assert f"MAINPID={new.pid}" in told
    assert "STOPPING=1" not in told


def test_a_booking_made_by_the_old_process_is_redeemed_from_the_new_one_at_its_time(tmp_path):
    place = Place(tmp_path, slots=1, step_us=10_000)
    try:
        old = place.serve()
        running = place.open(600, "long", stream=True)
        status, headers, _ = place.post(5, "booked")
        told = time.monotonic() + int(headers["retry-after-ms"]) / 1000
        assert status == 429
        assert headers["x-zl-ticket"]
        new = place.serve("--takeover")
        assert time.monotonic() < told
        running.close()  # steps of a busy machine may be late, and this test is not about them
        time.sleep(max(0.0, told - time.monotonic()))
        with place.open(5, "booked", ticket=headers["x-zl-ticket"]) as reply:
            assert reply.status == 200
        admin = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        admin.connect(str(place.path))
        admin.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: admin.recv(65536), b"")).decode()
        admin.close()
        became = {line.split('"')[3]: int(line.split()[-1]) for line in text.splitlines() if ":booking_total{" in line}
        # Late, on a busy machine; early, where the new process measured slower steps there and found a later start.
        assert became["kept"] + became["late"] + became["early"] == 1
        assert became["no_show"] == became["broken"] == 0
        assert old.wait(WAIT_S) == 0
        assert stopped(new) == 0
    finally:
        end(place)


def test_budgets_go_on_where_they_stood_with_what_still_runs(tmp_path):
    place = Place(tmp_path, "[tenants]\ntokens_per_minute = 2000\nconcurrent = 2\n", step_us=4000)
    try:
        old = place.serve()
        assert place.post(1000, ignore_eos=True)[0] == 200
        running = place.stream(500)
        new = place.serve("--takeover")
        status, _, body = place.post(600)
        assert (status, json.loads(body)["error"]["code"]) == (429, "rate_limit_exceeded")
        assert place.post(100)[0] == 200
        running.join()
        assert old.wait(WAIT_S) == 0
        assert stopped(new) == 0
    finally:
        end(place)


@pytest.mark.parametrize("last", ["hello", "take", "estate", "go"])
def test_a_new_process_that_dies_leaves_the_old_one_serving(place, last):
    old = place.serve()
    assert place.post(3)[0] == 200
    running = place.stream(1500) if last == "go" else None  # else nothing would be left to do for it
    channel = place.hello()
    if last in ("take", "estate", "go"):
        channel.send(Take())
    if last in ("estate", "go"):
        assert isinstance(channel.ask(WAIT_S)[0], Estate)
    if last == "go":
        channel.send(Ready())
        assert isinstance(channel.ask(WAIT_S)[0], Go)
    channel.close()
    assert place.post(4)[0] == 200
    assert place.client().chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": "again"}], max_tokens=5
    )
    if running is not None:
        running.join()
    assert stopped(old) == 0
    assert len(place.records()) == (3 if running is None else 4)
    assert annexes(place.ledger) == []


def test_another_format_is_refused_and_the_old_process_serves_on(place):
    place.serve()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(WAIT_S)
        stranger.connect(str(place.path))
        stranger.sendall(struct.pack(">4sH", b"ZLTO", VERSION + 1))
        assert stranger.recv(64) == struct.pack(">4sH", b"ZLTO", VERSION)
        assert stranger.recv(64) == b""
    assert place.post(3)[0] == 200


def test_a_server_of_another_format_is_not_taken_over(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def answer() -> None:
            accepted, _ = listening.accept()
            accepted.sendall(struct.pack(">4sH", b"ZLTO", VERSION + 1))
            accepted.recv(65536)
            accepted.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TakeoverFailed, match=f"different formats \\({VERSION + 1} and {VERSION}\\)"):
            NewProcess(tmp_path / "s", {})
        thread.join()


def test_who_would_listen_elsewhere_is_told_before_its_model_is_read(place):
    place.serve()
    place.flags[place.flags.index("--admin") + 1] = "127.0.0.1:9"
    process = place.start(f"--takeover={place.path}")
    said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "--admin = 127.0.0.1:0 and the new one 127.0.0.1:9" in said
    assert place.post(3)[0] == 200


def test_two_cannot_take_over_at_once(place):
    place.serve()
    first = place.hello()
    second = place.channel()
    message, _ = second.ask(WAIT_S)
    assert isinstance(message, Refused)
    assert "already" in message.why
    first.close()
    second.close()
    place.hello().close()


def test_without_a_server_the_remedy_is_named(place):
    process = place.start("--takeover")
    said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert f"no server listens at {place.path}. Start without --takeover" in said


def test_a_tcp_address_cannot_hand_sockets_over(place):
    process = place.start("--takeover=127.0.0.1:8001")
    said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "only be handed over through a Unix socket" in said


def test_sigusr2_starts_the_new_process(place):
    old = place.serve()
    old.send_signal(signal.SIGUSR2)
    assert old.wait(WAIT_S) == 0
    assert place.post(3)[0] == 200
    new = int(next(line for line in place.told if line.startswith("MAINPID=")).partition("=")[2])
    assert new != old.pid
    os.kill(new, signal.SIGTERM)
    deadline = time.monotonic() + WAIT_S
    while "STOPPING=1" not in place.told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "STOPPING=1" in place.told
