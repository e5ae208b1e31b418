"""The process that takes over, when the old one, which is played here, keeps the service after all."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeover.place import WAIT_S, Place, end
from zerolayer.guard.deadline.succession import Engagements
from zerolayer.serve.takeover.channel import Channel
from zerolayer.serve.takeover.clocks import clocks
from zerolayer.serve.takeover.messages import Estate, Hello, Ready, Refused, Take, Welcome

NOTHING = Engagements((), (), 0)


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    end(made)


class Keeper:
    """A server that offers everything and then serves on."""

    def __init__(self, place: Place) -> None:
        self.local = place.folder / "service.sock"
        place.flags += ["--unix", str(self.local)]
        self.sockets = {"service": _on_port(), "admin": _on_port()}
        self.sockets |= {"unix": _at(self.local), "admin_unix": _at(place.path)}

    def offer(self) -> Channel:
        """Until the new process is ready."""
        admin = self.sockets["admin_unix"]
        admin.settimeout(WAIT_S)
        channel = Channel(admin.accept()[0])
        assert isinstance(channel.ask(WAIT_S)[0], Hello)
        channel.send(Welcome("test", 1, clocks(), {}))
        assert isinstance(channel.ask(WAIT_S)[0], Take)
        estate = Estate(tuple(self.sockets), NOTHING, (), (), time.monotonic_ns())
        channel.send(estate, [each.fileno() for each in self.sockets.values()])
        assert isinstance(channel.ask(WAIT_S)[0], Ready)
        return channel

    def close(self) -> None:
        for each in self.sockets.values():
            each.close()


def _on_port() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


def _at(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    return listening


def test_what_was_not_handed_over_in_the_end_stays_the_old_processes(place):
    keeper = Keeper(place)
    new = place.start("--takeover")
    channel = keeper.offer()
    channel.send(Refused("it was told to end"))
    said, _ = new.communicate(timeout=WAIT_S)
    assert new.returncode == 1
    assert "the running server was not taken over: it was told to end" in said
    assert "Traceback" not in said
    assert place.path.exists()
    assert keeper.local.exists()
    channel.close()
    keeper.close()


def test_a_new_process_that_is_told_to_end_ends_after_the_old_one_and_nobody_serves_then(place):
    old = place.serve()
    with socket.create_connection(("127.0.0.1", place.port)) as unfinished:  # for which the old one waits a moment
        unfinished.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
        new = place.serve("--takeover")
        new.send_signal(signal.SIGTERM)
        assert (new.wait(WAIT_S), old.wait(WAIT_S)) == (0, 0)
    assert not place.path.exists()
