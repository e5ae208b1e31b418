"""Who may take a server over, and who is told why not."""

from __future__ import annotations

import asyncio
import os
import socket

from zerolayer.contract import Contract
from zerolayer.serve.takeover import heirs
from zerolayer.serve.takeover.channel import Channel
from zerolayer.serve.takeover.heirs import PARENT, Heirs
from zerolayer.serve.takeover.messages import Refused


def told(made: Heirs) -> str:
    """What somebody is told who knocks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        made.knock(ours)
        message, _ = Channel(theirs).ask(5) or (None, [])
    assert isinstance(message, Refused)
    return message.why


def refusal(environ: dict[str, str]) -> str:
    async def knock() -> str:
        return told(Heirs(None, Contract(), 1.0, environ=environ))  # type: ignore[arg-type] # nobody gets that far

    return asyncio.run(knock())


def test_a_node_of_several_devices_is_its_parents():
    assert "`serve --devices` starts this node again" in refusal({PARENT: str(os.getppid())})


def test_the_first_process_of_a_container_would_take_it_along(monkeypatch):
    monkeypatch.setattr(heirs, "getpid", lambda: 1)
    assert "start a new container" in refusal({})


def test_a_server_that_was_told_to_end_hands_nothing_over():
    async def knock() -> str:
        made = Heirs(None, Contract(), 1.0)  # type: ignore[arg-type]
        assert not await made.settle()
        return told(made)

    assert "told to end" in asyncio.run(knock())
